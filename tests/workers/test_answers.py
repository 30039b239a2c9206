"""The request to a push worker, and the handling of its response."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from greenroom import Jobs
from greenroom.actors.workers.states import WorkFailed
from tests.support import open_engine
from tests.workers.support import Answers, dispatch_of, work


async def answer(push: Answers, max_value_bytes: int = 1 << 20, **about: Any) -> Any:
    async with open_engine(Jobs(), max_value_bytes=max_value_bytes) as engine:
        await engine.workers.register("w", "http://w:1/base", ["sum", "a b/ü"])
        worked = await dispatch_of(engine, push).push(work(**about))
        assert (worked.worker, worked.worker_url) == ("w", "http://w:1/base")
        return worked.result


async def failure(push: Answers, **options: Any) -> WorkFailed:
    with pytest.raises(WorkFailed) as failed:
        await answer(push, **options)
    assert (failed.value.worker, failed.value.worker_url) == ("w", "http://w:1/base")
    assert failed.value.message.startswith('worker "w" at http://w:1/base: ')
    assert str(failed.value) == f"{failed.value.code}: {failed.value.message}"
    return failed.value


async def test_a_request_contains_the_input_the_params_and_the_idempotency_key(autojump_clock):
    push = Answers()
    await answer(push, service="a b/ü", input={"x": [1]}, params={"op": "upper"}, key="r:nöde 1:1:0")
    [(url, body, headers)] = push.calls
    assert url == "http://w:1/base/exec/a%20b%2F%C3%BC"
    assert body == {"input": {"x": [1]}, "params": {"op": "upper"}}
    assert headers["Idempotency-Key"] == "r:n%C3%B6de%201:1:0"


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (b'{"result": {"a": [1, 2.5, null, "\\u00fc"]}, "error": ""}', {"a": [1, 2.5, None, "ü"]}),
        (b'{"result": null}', None),
        (b'{"result": 1, "error": null, "more": [1]}', 1),
        (b'{"error": ""}', None),
        (b' {"result" : "x"} \r\n', "x"),
    ],
)
async def test_a_result_is_accepted(autojump_clock, body, result):
    assert await answer(Answers(body=body)) == result


async def test_an_error_in_the_response_is_an_error_of_the_service(autojump_clock):
    failed = await failure(Answers(body=b'{"result": null, "error": "division by zero"}'))
    assert (failed.code, failed.workers_fault) == ("service_error", False)
    assert failed.message.endswith(": division by zero")


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (b"", "bad_json", "is not valid JSON"),
        (b"<html>Welcome</html>", "bad_json", '"<html>Welcome</html>"'),
        (b'{"result": 1', "bad_json", "is not valid JSON"),
        (b'{"result": 1} {"result": 2}', "bad_json", "is not valid JSON"),
        (b'{"result": NaN}', "bad_json", "is not valid JSON"),
        (b'{"result": [Infinity]}', "bad_json", "is not valid JSON"),
        (b'{"result": "\xff\xfe"}', "bad_json", "is not valid JSON"),
        (b'{"result": ' + b"[" * 200 + b"]" * 200 + b"}", "bad_answer", "nested more than 100 levels deep"),
        (b'{"result": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "bad_json", "is not valid JSON"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "bad_json", "is not valid JSON"),
        (b'{"result": 1e999}', "bad_json", "is not valid JSON"),
        (b'{"result": 123456789012345678901234567890}', "bad_answer", "outside"),
        (b"[1, 2]", "bad_answer", '{"result", "error"}'),
        (b'"ok"', "bad_answer", '{"result", "error"}'),
        (b"null", "bad_answer", '{"result", "error"}'),
        (b"{}", "bad_answer", 'neither "result" nor "error"'),
        (b'{"error": null}', "bad_answer", 'neither "result" nor "error"'),
        (b'{"Result": 1}', "bad_answer", 'neither "result" nor "error"'),
        (b'{"result": 1, "error": 42}', "bad_answer", "expected string"),
        (b'{"result": 1, "error": {"message": "x"}}', "bad_answer", "expected string"),
    ],
)
async def test_an_invalid_response_is_a_named_failure(autojump_clock, body, code, said):
    failed = await failure(Answers(body=body))
    assert (failed.code, failed.workers_fault) == (code, True)
    assert said in failed.message
    assert len(failed.message) < 1000


async def test_a_result_over_the_limit_is_too_large(autojump_clock):
    failed = await failure(Answers(body=b'{"result": "' + b"x" * 1000 + b'"}'), max_value_bytes=1000)
    assert (failed.code, failed.workers_fault) == ("too_large", False)
    assert "the result has 1,002 bytes, more than the 1,000 allowed" in failed.message
    assert await answer(Answers(body=b'{"result": "' + b"x" * 998 + b'"}'), max_value_bytes=1000) == "x" * 998


async def test_work_over_the_limit_is_not_sent(autojump_clock):
    push = Answers()
    with pytest.raises(WorkFailed, match="allowed: send less, or a reference to the data") as failed:
        await answer(push, max_value_bytes=1000, input="x" * 1000)
    assert (failed.value.code, failed.value.worker, push.calls) == ("too_large", None, [])


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, b'{"result": 1, "error": ""}', "status 500: "),
        (404, b'{"error": "no service here"}', "no service here"),
        (503, b"", "status 503"),
        (302, b"", "status 302; redirects are not followed"),
        (201, b'{"result": 1}', "status 201"),
        (500, b"\x00\xff" * 5000, "status 500"),
    ],
)
async def test_a_status_other_than_200_is_named_with_the_body(autojump_clock, status, body, said):
    failed = await failure(Answers(status, body))
    assert (failed.code, failed.workers_fault) == ("bad_status", True)
    assert said in failed.message
    assert len(failed.message) < 1000


async def test_a_call_without_a_response_in_time_is_cancelled_as_a_timeout(autojump_clock):
    push = Answers()
    push.hold = trio.Event()
    began = trio.current_time()
    failed = await failure(push, timeout=7)
    assert (failed.code, failed.workers_fault, push.cancelled) == ("timeout", True, 1)
    assert "no response within 7 s" in failed.message
    assert trio.current_time() == began + 7


async def test_a_long_error_is_cut(autojump_clock):
    failed = await failure(Answers(body=b'{"error": "' + b"x" * 100_000 + b'"}'))
    assert len(failed.message) < 2100
