"""Views of a Django application start runs and show them: plain functions, called by many threads.

All threads of a process share one client. It connects when it is first needed, so each process that the web
server forks has its own. The example needs no Django: `Request` and `JsonResponse` replace its classes, and
a thread replaces `greenroom serve`.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import trio

from greenroom import Jobs, Run, errors, open_engine, sync
from greenroom.gateway import GatewayConfig, open_gateway

# views.py

connecting = threading.Lock()
clients: list[sync.Client] = []


def greenroom_client() -> sync.Client:
    with connecting:
        if not clients:
            clients.append(sync.connect(settings["GREENROOM_URL"]))
        return clients[0]


def start(request: "Request") -> "JsonResponse":
    try:
        ticket = greenroom_client().submit("mirror", handle=request.user, params=request.POST)
    except errors.Conflict:
        return JsonResponse({"error": "your last mirror is not done yet"}, status=409)
    except errors.Invalid as error:
        return JsonResponse({"error": error.message}, status=400)
    return JsonResponse({"run": ticket.id}, status=202)


def show(request: "Request") -> "JsonResponse":
    try:
        run = greenroom_client().get_run(request.user)
    except (errors.NotFound, errors.NoActiveRun):
        return JsonResponse({"status": "idle"})
    return JsonResponse({"status": run.status, "url": run.params["url"]})


def stop(request: "Request") -> "JsonResponse":
    run = greenroom_client().cancel(request.user)
    return JsonResponse({"status": str(greenroom_client().wait(run.id).status)})


# What Django brings.


@dataclass
class Request:
    user: str
    POST: dict[str, str] = field(default_factory=dict)


@dataclass
class JsonResponse:
    data: dict[str, str]
    status: int = 200


settings: dict[str, str] = {}

# What `greenroom serve app:jobs` does.

jobs = Jobs()


@jobs.job("mirror")
async def mirror(run: Run, params: dict[str, str]) -> None:
    await trio.sleep_forever()


async def serve(ready: threading.Event, stopped: threading.Event) -> None:
    async with open_engine(jobs, "memory:") as engine, open_gateway(engine, GatewayConfig(port=0)) as gateway:
        settings["GREENROOM_URL"] = gateway.url
        ready.set()
        await trio.to_thread.run_sync(stopped.wait)


def main() -> None:
    ready, stopped = threading.Event(), threading.Event()
    server = threading.Thread(target=trio.run, args=(serve, ready, stopped))
    server.start()
    ready.wait()
    page = {"url": "https://example.org"}
    with ThreadPoolExecutor(8) as threads:  # as a web server has them
        users = [f"user {number}" for number in range(20)]
        started = list(threads.map(lambda user: start(Request(user, page)), users))
        print({response.status for response in started})
        print(start(Request("user 7", page)))
        print({user: show(Request(user)).data["url"] for user in ("user 7", "user 8")})
        print({response.data["status"] for response in threads.map(lambda u: stop(Request(u)), users)})
    print(show(Request("user 7")), show(Request("nobody")))
    clients.pop().close()
    stopped.set()
    server.join()


if __name__ == "__main__":
    main()

# Output:
# {202}
# JsonResponse(data={'error': 'your last mirror is not done yet'}, status=409)
# {'user 7': 'https://example.org', 'user 8': 'https://example.org'}
# {'cancelled'}
# JsonResponse(data={'status': 'idle'}, status=200) JsonResponse(data={'status': 'idle'}, status=200)
