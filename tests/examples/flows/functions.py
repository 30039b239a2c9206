"""The functions that `local` nodes call, in the server's process: `greenroom serve functions:jobs`."""

from typing import Any

from greenroom import Jobs

jobs = Jobs()


@jobs.function("count words")
def count_words(text: str) -> dict[str, Any]:
    """A plain function runs in a thread; an `async def` runs in the engine's loop."""
    words = text.split()
    return {"words": len(words), "longest": max(words, key=len, default="")}


@jobs.function("discount")
async def discount(price: float, params: dict[str, Any]) -> float:
    """With a second argument, a function gets the parameters, too."""
    return price * (100 - params.get("percent", 0)) / 100
