"""Sample values for the placeholders of a text, selected by the name in the placeholder."""

from __future__ import annotations

import ast

_RUN = "01a1ef08c732712b80fc1fdd7c563001"
_SAMPLES = {
    **dict.fromkeys(("run", "run_id", "active", "taken", "parent", "child"), _RUN),
    **dict.fromkeys(("handle", "account", "who", "by"), "alice"),
    **dict.fromkeys(("job", "called"), "mirror"),
    **dict.fromkeys(("limit", "most", "max_bytes", "maximum", "MAX_BYTES", "MAX_VALUES"), "1000"),
    **dict.fromkeys(("count", "number", "size", "length", "index", "attempt", "visit", "place", "n"), "3"),
    **dict.fromkeys(("seconds", "timeout", "waited", "left"), "30"),
    **dict.fromkeys(("url", "server", "target"), "http://127.0.0.1:8440"),
    **dict.fromkeys(("path", "file", "folder", "fspath"), "jobs/app.py"),
    **dict.fromkeys(("store", "address", "_address"), "sqlite:///greenroom.db"),
    **dict.fromkeys(("error", "message", "why", "reason", "trouble", "problem"), "connection refused"),
    **dict.fromkeys(("seq", "last_seq"), "42"),
    **dict.fromkeys(("run_or_handle", "handles"), "alice"),
    **dict.fromkeys(("id", "item_id", "queue_id", "task_id"), _RUN),
    **dict.fromkeys(("name", "names", "known"), "mirror"),
    **dict.fromkeys(("value", "text", "op", "action", "what"), "seven"),
    **dict.fromkeys(("flow", "ref"), "order"),
    **dict.fromkeys(("services",), "sum"),
    **dict.fromkeys(("MAX_WORKERS", "MAX_STEPS", "MAX_MESSAGES", "MAX_NAME", "MAX_PATH"), "1000"),
    "lane": "images",
    "node": "pay",
    "kind": "executor",
    "status": "running",
    "worker": "worker-1",
    "service": "sum",
    "host": "127.0.0.1",
    "port": "8440",
    "pid": "4711",
    "role": "viewer",
    "version": "2",
    "seed": "7",
    **dict.fromkeys(("interrupt", "interrupt_id"), f"{_RUN}.1"),
    "__name__": "OSError",
}


def sample(node: ast.expr) -> str:
    """A likely value; `<name>` where no name of the table fits."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.Call(func=ast.Name(id="shown"), args=[value]):
            return f'"{sample(value)}"'
        case ast.Call(func=ast.Name(id="len")):
            return "3"
        case ast.Call(func=ast.Attribute(attr="join"), args=[*_, value]):
            return f"{sample(value)}, …"
        case ast.Call(args=[value]):
            return sample(value)
        case ast.IfExp(body=body):
            return sample(body)
        case ast.BoolOp(values=[first, *_]):
            return sample(first)
        case ast.Attribute(value=ast.Name(id=owner), attr="id"):
            return _SAMPLES.get(owner, _RUN)
        case ast.Attribute(value=ast.Name(id="leader" | "peer" | "other"), attr="address"):
            return "http://10.0.0.2:8440"
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return _SAMPLES.get(name, f"<{name.strip('_').replace('_', ' ')}>")
        case ast.Subscript(value=value):
            return sample(value)
    return f"<{ast.unparse(node)}>"
