"""Read the configuration into `Config`, or report all its errors together."""

from __future__ import annotations

import difflib
import importlib
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import attrs
import cattrs
from cattrs.errors import ClassValidationError
from cattrs.gen import make_dict_structure_fn, override

from ..actors.engine.submission_checks import SubmissionChecks
from ..actors.executors.announced import AnnouncedJobs
from ..actors.flow.job import FlowJob
from ..actors.jobs import EngineJobs, Jobs
from ..actors.schedules.configured import all_declared, check_declared, configured
from ..actors.webhooks.subscribing import Subscriptions
from ..actors.workers.networks import Networks
from ..gateway.auth.access import Access
from ..gateway.config import GatewayConfig, Limits
from ..modulepath import search_current_folder
from ..persistence.memory import MemoryStore
from ..protocol.errors import GreenroomError, Invalid
from ..protocol.lane_settings import read_lane
from ..protocol.structuring import faults_in
from ..protocol.values import shown
from . import kinds
from .clusters import cluster_mistakes
from .kinds import Kind
from .mistakes import ConfigMistakes, Mistake
from .secrets import webhook_secret
from .settings import Config, EngineConfig
from .sources import PREFIX, Path_, Unreadable, Written, find_file, read_file, variable_name, variables

T = TypeVar("T")

OTHER_VARIABLES = frozenset(
    f"{PREFIX}{name}" for name in ("CONFIG", "URL", "TOKEN", "TOKEN_FILE", "WORKER_URL")
)
"""Variables of the commands, which are not settings."""

_SPECIAL: dict[type, dict[str, Kind]] = {
    EngineConfig: {
        "jobs": kinds.JOBS,
        "store": kinds.STORE,
        "max_concurrent": kinds.whole(0),
        "lanes": kinds.LANES,
        "keep_runs": kinds.KEEP,
        "keep_events": kinds.KEEP,
        "shutdown_timeout": kinds.TIME,
        "executors": kinds.whole(0),
        "worker_networks": kinds.networks("worker_networks"),
        "webhook_secret": kinds.SECRET,
        "webhook_networks": kinds.networks("webhook_networks"),
    },
    Config: {"schedules": kinds.SCHEDULES},
    GatewayConfig: {"port": kinds.whole(0, 65_535)},
    Limits: {"rate": kinds.RATE},
}
"""The kinds of settings for which the type is not specific enough."""

_BY_TYPE: dict[Any, Kind] = {
    bool: kinds.TRUTH,
    int: kinds.whole(1),
    float: kinds.SECONDS,
    str: kinds.TEXT,
    str | None: kinds.TEXT,
    tuple[str, ...]: kinds.TEXTS,
}


@attrs.frozen
class Flag:
    """A flag of the command line: its name `--port`, its setting `gateway.port`, and its value."""

    name: str
    setting: str
    value: Any


@attrs.frozen
class Read:
    """A configuration, the origins of its values, warnings, and the file that was read, if there was one."""

    config: Config
    written: Written
    warnings: tuple[str, ...] = ()
    file: Path | None = None


def read_config(
    file: str | None = None,
    flags: Iterable[Flag] = (),
    environ: Mapping[str, str] | None = None,
) -> Read:
    """Read file, variables and flags, each overriding the previous. Raises `ConfigMistakes`."""
    environ = os.environ if environ is None else environ
    found = find_file(file or environ.get("GREENROOM_CONFIG"))
    mistakes: list[Mistake] = []
    written = Written()
    if found is not None:
        try:
            written = read_file(found)
        except Unreadable as error:
            mistakes.append(Mistake("", "", str(error)))
    for path, text, variable in variables(VARIABLES, environ):
        try:
            written.put(path, SETTINGS[path].from_text(text), variable, SETTINGS[path].merge)
        except ValueError as error:
            mistakes.append(Mistake(variable, ".".join(path), str(error)))
    for flag in flags:
        path = tuple(flag.setting.split("."))
        merge = SETTINGS[path].merge
        try:
            value = flag.value if merge is None else SETTINGS[path].from_text(flag.value)
            written.put(path, value, flag.name, merge)
        except ValueError as error:
            mistakes.append(Mistake(flag.name, flag.setting, str(error)))
    config, wrong = _structure(written)
    mistakes += wrong
    if config is None or mistakes:
        raise ConfigMistakes(sorted(mistakes, key=_place))
    return Read(config, written, tuple(_odd_variables(environ)), found)


def check_together(read: Read, jobs: Jobs | None = None) -> Jobs | None:
    """Check the settings in combination, and whether the files and the jobs exist. For the start of a server,
    each reload, and `greenroom config check`. A server that reloads passes the jobs that it has loaded.

    Returns the jobs, if the configuration has them. Raises `ConfigMistakes`.
    """
    gateway = read.config.gateway
    mistakes: list[Mistake] = []

    def wrong(section: str, name: str, text: str) -> None:
        mistakes.append(Mistake(read.written.origin((section, name)), f"{section}.{name}", text))

    if jobs is None and read.config.engine.jobs is not None:
        try:
            jobs = load_named(read.config.engine.jobs, Jobs)
            jobs.import_path = read.config.engine.jobs
        except Invalid as error:
            wrong("engine", "jobs", f"cannot be loaded: {error.message}")
    elif jobs is None and read.config.engine.executors:
        wrong("engine", "executors", "requires jobs: child processes execute only bodies of jobs")
    for name in ("tls_certificate", "tls_key", "token_file"):
        path = getattr(gateway, name)
        if path is not None and not os.access(path, os.R_OK):
            wrong("gateway", name, f"is not a readable file (got {path!r})")
    if gateway.tls_key is not None and gateway.tls_certificate is None:
        wrong("gateway", "tls_key", "requires tls_certificate")
    if gateway.token_file is None or os.access(gateway.token_file, os.R_OK):
        try:
            Access(gateway)
        except GreenroomError as error:
            name = "host" if gateway.token_file is None else "token_file"
            if "workers_without_token" in error.message:
                name = "workers_without_token"
            wrong("gateway", name, f"is not valid: {error.message}")
    signs = True
    try:
        signs = webhook_secret(read.config.engine) is not None
    except Invalid as error:
        wrong("engine", "webhook_secret_file", error.message.removeprefix("engine.webhook_secret_file "))
    subscriptions = _subscriptions(read.config.engine, signs=signs)
    try:
        subscriptions.check_lanes(
            {lane: read_lane(lane, each) for lane, each in read.config.engine.lanes.items()}
        )
    except Invalid as error:
        wrong("engine", "lanes", f"is not valid: {error.message}")
    if jobs is not None or read.config.engine.jobs is None:
        _check_schedules(read.config, jobs or Jobs(), subscriptions, wrong)
    if read.config.cluster.enabled:
        for mistake in cluster_mistakes(read.config):
            wrong(*mistake)
    if mistakes:
        raise ConfigMistakes(sorted(mistakes, key=_place))
    return jobs


def _subscriptions(config: EngineConfig, *, signs: bool) -> Subscriptions:
    """What checks where events of runs can be delivered."""
    networks = Networks(config.webhook_networks or (), setting="webhook_networks", public=True)
    return Subscriptions(networks, signs=signs, notify_of=lambda lane: None)


def _check_schedules(
    config: Config, jobs: Jobs, subscriptions: Subscriptions, wrong: Callable[[str, str, str], None]
) -> None:
    """Check the schedules of the file and of the jobs, as the engine does when it opens."""
    limit = config.engine.max_value_bytes
    flows = FlowJob(MemoryStore(), time.time, limit).job()
    checks = SubmissionChecks(EngineJobs(jobs, flows, AnnouncedJobs(jobs)), limit, subscriptions)
    in_code = [job.schedule for job in jobs.all if job.schedule is not None]
    for declared in in_code:
        try:
            check_declared(declared, checks)
        except Invalid as error:
            wrong("engine", "jobs", f"is not valid: {error.message}")
    for name, table in config.schedules.items():
        try:
            all_declared(in_code, configured({name: table}, checks))
        except Invalid as error:
            reason = error.message.removeprefix(f"schedule {shown(name)}: ")
            wrong("schedules", name, f"is not valid: {reason}")


def load_named(where: str, kind: type[T]) -> T:
    """Load the object `module:name`, from this folder or an installed package.

    Raises `Invalid`, also for an object of another kind.
    """
    module, _, name = where.partition(":")
    search_current_folder()
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise Invalid(f"cannot import module {module!r}: {error}", value=where) from error
        raise Invalid(
            f"module {error.name!r} not found in {os.getcwd()} or among installed packages"
        ) from None
    except AttributeError as error:
        raise Invalid(f"module {module!r} has no {name!r}: {error}", value=where) from error
    except Exception as error:  # a module can raise anything when it is imported
        *_, last = traceback.extract_tb(error.__traceback__)
        place = "" if isinstance(error, SyntaxError) else f" ({last.filename}:{last.lineno})"
        raise Invalid(
            f"cannot import module {module!r}: {type(error).__name__}: {error}{place}", value=where
        ) from error
    if not isinstance(found, kind):
        raise Invalid(
            f"{where} must be a greenroom.{kind.__name__} (got {type(found).__name__})", value=where
        )
    return found


def _structure(written: Written) -> tuple[Config | None, list[Mistake]]:
    try:
        return _converter.structure(written.values, Config), []
    except ClassValidationError as error:
        paths = ((tuple(map(str, keys)), text) for keys, text in faults_in(error))
        return None, [Mistake(written.origin(path), ".".join(path), text) for path, text in paths]


def _place(mistake: Mistake) -> tuple[str, int]:
    """Return the sort key of an error: its file and line."""
    file, _, line = mistake.origin.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (mistake.origin, 0)


def _odd_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield warnings for variables that look like settings. Not errors: other programs set some."""
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in VARIABLES and name not in OTHER_VARIABLES:
            known = [variable.removeprefix(PREFIX) for variable in VARIABLES]
            near = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1, cutoff=0.8)
            yield f"the variable {name} is not a setting" + (
                f": did you mean {PREFIX}{near[0]}?" if near else ""
            )


def _kind(cls: type, name: str, hint: Any) -> Kind:
    special = _SPECIAL.get(cls, {}).get(name)
    if special is not None:
        return special
    return (
        kinds.one_of(*get_args(hint)) if get_origin(hint) is not None and _are_words(hint) else _BY_TYPE[hint]
    )


def _are_words(hint: Any) -> bool:
    return bool(get_args(hint)) and all(isinstance(word, str) for word in get_args(hint))


def _hook(kind: Kind) -> Callable[[Any, Any], Any]:
    return lambda value, _: kind.read(value)


def _prepare(cls: type, above: Path_ = ()) -> Iterator[tuple[Path_, Kind]]:
    """Register a class with the converter, innermost first; yields its settings."""
    hooks: dict[str, Any] = {}
    hints = get_type_hints(cls)
    for field in attrs.fields(cls):
        hint, path = hints[field.name], (*above, field.name)
        if attrs.has(hint) and field.name not in _SPECIAL.get(cls, {}):
            yield from _prepare(hint, path)
            continue
        kind = _kind(cls, field.name, hint)
        hooks[field.name] = override(struct_hook=_hook(kind))
        yield path, kind
    structure: Callable[[Any, Any], Any] = make_dict_structure_fn(
        cls, _converter, _cattrs_forbid_extra_keys=True, **hooks
    )

    def checked(value: Any, type_: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a table (got {shown(value)})")
        return structure(value, type_)

    _converter.register_structure_hook(cls, checked)


_converter = cattrs.Converter(detailed_validation=True)
SETTINGS: dict[Path_, Kind] = dict(_prepare(Config))
"""All settings, in the order of their tables."""
VARIABLES: dict[str, Path_] = {variable_name(path): path for path in SETTINGS}
"""All settings by the names of their variables."""
