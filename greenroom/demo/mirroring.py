"""The demo's job: mirror an account's album file by file; a restart resumes at the last checkpoint.

It is written like a job of an application.
"""

from __future__ import annotations

import httpx
import msgspec

from ..actors.jobs import Jobs
from ..actors.run.api import Run

jobs = Jobs()


class Mirror(msgspec.Struct):
    """The site's URL, and the account."""

    site: str
    account: str


@jobs.job("mirror", resumable=True)
async def mirror(run: Run, params: Mirror) -> dict[str, int]:
    """Download every file of the album, starting at the last checkpoint."""
    begin, done = run.checkpoint or (0, 0)
    files = 0
    async with httpx.AsyncClient(base_url=params.site, trust_env=False) as site:
        album = (await site.get(f"/{params.account}")).raise_for_status().json()
        total = sum(picture["size"] for picture in album)
        for number, picture in enumerate(album[begin:], begin + 1):
            name = picture["name"]
            question = f"{name} is private: mirror it, too?"
            if picture["private"] and not await run.confirm(question, timeout=120, key=name):
                await run.log(f"skipping {name}")
                total -= picture["size"]
                continue
            await run.log(f"downloading {name}")
            async with (
                run.open_file(name, overwrite=True) as file,
                site.stream("GET", f"/{params.account}/{name}") as answer,
            ):
                async for chunk in answer.raise_for_status().aiter_bytes():
                    await file.write(chunk)
                    done += len(chunk)
                    await run.progress(done, total, files=number - 1)
            files += 1
            await run.save_checkpoint((number, done))
            await run.progress(done, total, files=number)
    return {"files": files, "bytes": done}
