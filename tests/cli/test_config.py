"""The configuration: its sources, which of them has priority, and how errors are reported."""

import json
import logging
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from greenroom import Keep
from greenroom.actors.executors import child_logs
from greenroom.cli import main
from greenroom.config.mistakes import ConfigMistakes
from greenroom.config.reading import SETTINGS, VARIABLES, Flag, Read, read_config
from greenroom.config.secrets import webhook_secret
from greenroom.errors import Invalid
from greenroom.logs import begin_logs
from tests.cli.runner import runner


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(autouse=True)
def _modules_of_this_test_only(tmp_path: Path) -> Iterator[None]:
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) == str(tmp_path / f"{name}.py"):
            del sys.modules[name]


def configured(text: str = "", /, flags: tuple[Flag, ...] = (), **variables: str) -> Read:
    Path("greenroom.toml").write_text(text, encoding="utf-8")
    return read_config(flags=flags, environ=variables)


def mistakes(text: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigMistakes) as caught:
        configured(text, **variables)
    assert isinstance(caught.value, Invalid)
    return [str(mistake) for mistake in caught.value.mistakes]


def check(*arguments: str) -> Result:
    result = runner().invoke(main, ["config", "check", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_without_a_configuration_the_defaults_apply():
    read = read_config(environ={})
    assert read.config.engine.store == "sqlite:///greenroom.db"
    assert (read.config.gateway.host, read.config.gateway.port) == ("127.0.0.1", 8440)
    assert (read.config.logs.format, read.config.logs.level) == ("text", "info")
    assert read.warnings == ()


def test_variables_override_the_file_and_flags_override_both():
    text = "[gateway]\nport = 1\nhost = '127.0.0.2'\nlimits.burst = 3\n[engine]\nmax_concurrent = 1"
    port = Flag("--port", "gateway.port", 3)
    config = configured(text, (port,), GREENROOM_GATEWAY_PORT="2", GREENROOM_MAX_CONCURRENT="2").config
    assert config.gateway.port == 3
    assert config.engine.max_concurrent == 2
    assert config.gateway.host == "127.0.0.2"
    assert config.gateway.limits.burst == 3


def test_every_setting_can_be_set_by_its_variable():
    texts = {
        int: "7",
        float: "7",
        bool: "true",
        "jobs": "app:jobs",
        "store": "memory:",
        "lanes": "a=7, b=none",
        "keep_runs": "7",
        "keep_events": "30d",
        "allowed_origins": "https://a, https://b",
        "allowed_hosts": "a",
        "workers_without_token": "loopback",
        "worker_networks": "10.0.0.0/8, fd00::/8",
        "webhook_networks": "10.0.0.0/8",
        "webhook_secret": "a secret of this test",
        "schedules": '{"nightly": {"job": "report", "every": 60}}',
        "console": "false",
        "format": "json",
        "level": "error",
    }
    defaults = read_config(environ={}).config
    for variable, path in VARIABLES.items():
        default: object = defaults
        for name in path:
            default = getattr(default, name)
        text = texts.get(path[-1]) or texts.get(type(default), "7")
        value: object = configured(**{variable: text}).config
        for name in path:
            value = getattr(value, name)
        assert value != default, variable
    assert len(VARIABLES) == len(SETTINGS) > 30


def test_lanes_and_retention_can_be_written_in_each_way():
    engine = configured("[engine]\nlanes = { a = 2, b = 'none' }\nkeep_runs = '30d'").config.engine
    assert engine.lanes == {"a": 2, "b": None}
    assert engine.keep_runs == Keep(age=30 * 86_400)
    engine = configured("[engine.lanes]\na = 0\n[engine.keep_runs]\ncount = 5\nage = 60").config.engine
    assert engine.lanes == {"a": 0}
    assert engine.keep_runs == Keep(5, 60)
    engine = configured(GREENROOM_LANES="a=2,b=none", GREENROOM_KEEP_RUNS="5").config.engine
    assert engine.lanes == {"a": 2, "b": None}
    assert engine.keep_runs == Keep(5)


def test_a_limit_in_a_variable_or_a_flag_leaves_rules_and_other_lanes_as_in_the_file():
    file = "[engine.lanes]\nmail = 1\n[engine.lanes.images]\nlimit = 2\nfair_by = 'tenant'\nage = '10m'\n"
    flag = Flag("--lane", "engine.lanes", " images =7,video=none")
    read = configured(file, (flag,), GREENROOM_LANES="images=5,mail=4")
    assert read.config.engine.lanes == {
        "mail": 4,
        "images": {"limit": 7, "fair_by": "tenant", "age": 600.0},
        "video": None,
    }
    assert read.written.origin(("engine", "lanes", "mail")) == "GREENROOM_LANES"
    assert read.written.origin(("engine", "lanes")) == "greenroom.toml:1, GREENROOM_LANES, --lane"


def test_lanes_can_be_written_as_json_in_the_variable():
    rules = '{"images": {"age": "2m", "priority": 3}, "mail": "none"}'
    lanes = configured(
        "[engine]\nlanes = { images = { limit = 2, age = 9 } }", GREENROOM_LANES=rules
    ).config.engine.lanes
    assert lanes == {"images": {"limit": 2, "age": 120.0, "priority": 3}, "mail": None}
    assert configured(GREENROOM_LANES=rules).config.engine.lanes["images"] == {"age": 120.0, "priority": 3}
    (wrong,) = mistakes("", GREENROOM_LANES='{"images": ')
    assert wrong.startswith("GREENROOM_LANES: engine.lanes must be JSON, and is not valid: ")


@pytest.mark.parametrize(
    ("file", "variable", "expected"),
    [
        ("lanes = 3", "images=2", "greenroom.toml:2"),
        ("lanes = { mail = 1 }", "images=many", "GREENROOM_LANES: engine.lanes.images"),
        ("lanes = { mail = -1 }", "images=2", "greenroom.toml:2"),
    ],
)
def test_an_error_in_merged_lanes_names_its_source(file: str, variable: str, expected: str):
    (wrong,) = mistakes(f"[engine]\n{file}", GREENROOM_LANES=variable)
    assert wrong.startswith(expected), wrong


def test_times_of_schedules_are_durations():
    text = """
        [schedules.nightly]
        job = "report"
        cron = "0 3 * * *"
        timezone = "Europe/Berlin"
        jitter = "5m"
        run_timeout = "2h"
        deadline = "none"
        params = { team = "sales" }
        tags = { kind = "report" }
    """
    assert configured(text).config.schedules == {
        "nightly": {
            "job": "report",
            "cron": "0 3 * * *",
            "timezone": "Europe/Berlin",
            "jitter": 300,
            "run_timeout": 7200,
            "deadline": math.inf,
            "params": {"team": "sales"},
            "tags": {"kind": "report"},
        }
    }


def test_errors_in_schedules_are_reported_together():
    b, c = "[schedules.b]\njob = 'x'\nevery = 'soon'\n", "[schedules.c]\njob = 'x'\ncrn = '*'\n"
    assert mistakes(f"[schedules]\na = 3\n{b}{c}") == [
        'greenroom.toml:2: schedules.a is not valid: must be a table, as in { job = "report", '
        'cron = "0 8 * * *" } (got 3)',
        'greenroom.toml:5: schedules.b.every must be a duration, in seconds or like "90m", "12h", "30d" '
        '(got "soon")',
        'greenroom.toml:6: schedules.c is not valid: unexpected argument "crn": did you mean "cron"?',
    ]
    assert mistakes("schedules = 3") == [
        "greenroom.toml:1: schedules must be a table for each schedule, as in [schedules.nightly] (got 3)"
    ]


def test_config_check_checks_schedules_against_the_jobs(tmp_path: Path):
    (tmp_path / "scheduled_app.py").write_text(
        "from greenroom import Jobs\njobs = Jobs()\n@jobs.job('report')\ndef report(run, params: dict): ...\n"
    )
    begin = "[engine]\njobs = 'scheduled_app:jobs'\n[schedules.nightly]\nevery = '1d'\n"
    Path("greenroom.toml").write_text(f"{begin}job = 'reprot'\n")
    refused = check()
    assert refused.exit_code == 2
    assert 'greenroom.toml:3: schedules.nightly is not valid: job "reprot" not found' in refused.stderr
    Path("greenroom.toml").write_text(f"{begin}job = 'report'\nparams = {{ team = 'sales' }}\n")
    assert "schedules = {'nightly': {'every': '1d', 'job': 'report'" in check().stdout


def test_config_check_checks_what_schedules_submit(tmp_path: Path):
    tmp_path.joinpath("app.py").write_text(
        "from greenroom import Jobs, Schedule\njobs = Jobs()\n"
        "@jobs.job('coded', schedule=Schedule(every=60, notify='http://10.0.0.1/'))\n"
        "async def coded(run): ...\n"
    )
    big = "x" * 2000
    Path("greenroom.toml").write_text(
        "[engine]\njobs = 'app:jobs'\nmax_value_bytes = 1000\n"
        "[schedules.large]\njob = 'flow'\nevery = 60\n"
        f"params = {{ flow = 'order', params = {{ text = '{big}' }} }}\n"
        "[schedules.hook]\njob = 'coded'\nevery = 60\nnotify = 'https://example.org/'\n"
        "[schedules.labels]\njob = 'flow'\nevery = 60\nneeds = ['gpu']\nparams = { flow = 'order' }\n"
    )
    result = check()
    assert result.exit_code == 2
    found = result.stderr.splitlines()
    assert len(found) == 5, found
    assert 'engine.jobs is not valid: schedule "coded": notify: url "http://10.0.0.1/"' in found[1]
    assert "schedules.large is not valid: params" in found[2]
    assert "schedules.hook is not valid: notify requires a secret" in found[3]
    assert "schedules.labels is not valid: needs must be empty for a flow" in found[4]


def test_config_check_checks_schedules_of_a_server_without_jobs():
    Path("greenroom.toml").write_text("[schedules.s]\njob = 'report'\nevery = 60\n")
    result = check()
    assert result.exit_code == 2
    assert 'schedules.s is not valid: job "report" not found; registered jobs: none' in result.stderr
    Path("greenroom.toml").write_text(
        "[schedules.s]\njob = 'flow'\nevery = 60\nparams = { flow = 'order' }\n"
    )
    assert check().exit_code == 0


def test_switches_are_written_as_true_or_false():
    assert configured("[engine]\nallow_scripts = true").config.engine.allow_scripts is True
    assert configured(GREENROOM_ALLOW_SCRIPTS="False").config.engine.allow_scripts is False
    for mistake in (mistakes("[engine]\nallow_scripts = 1"), mistakes("", GREENROOM_ALLOW_SCRIPTS="yes")):
        assert "engine.allow_scripts must be true or false" in mistake[0]


def test_several_addresses_are_one_store():
    text = "[engine]\nstore = ['postgresql://a/g', 'postgresql://b/g']"
    assert configured(text).config.engine.store == ("postgresql://a/g", "postgresql://b/g")


def test_all_errors_are_reported_together_each_with_its_line_and_the_expected_value():
    text = """
[engine]
max_concurent = 3
store = "mongo://db"
shutdown_timeout = "soon"
lanes = { images = -1, mail = 1, video = "many" }

[engine.keep_runs]
count = true
years = 2

[gateway]
port = 65536
allowed_origins = "https://a"
limits.rate = 0
[gateway.limits.deep]
x = 1

[gatway]
port = 1

[logs]
format = "xml"
"""
    assert mistakes(text, GREENROOM_MAX_CONCURRENT="few", GREENROOM_LOGS_LEVEL="loud") == [
        'GREENROOM_LOGS_LEVEL: logs.level must be debug or info or warning or error (got "loud")',
        'GREENROOM_MAX_CONCURRENT: engine.max_concurrent must be an integer, 0 or more (got "few")',
        'greenroom.toml:3: engine.max_concurent is unknown: did you mean "max_concurrent"?',
        "greenroom.toml:4: engine.store is not valid: a store's address must be memory:, or begin with "
        "sqlite:///, postgresql://, mysql:// or mariadb:// (got 'mongo')",
        'greenroom.toml:5: engine.shutdown_timeout must be a duration, in seconds or like "90m", "12h", '
        '"30d" (got "soon")',
        "greenroom.toml:6: engine.lanes.images must be an integer, 0 or more (got -1), "
        'or "none" for only the global limit, or a table of rules',
        'greenroom.toml:6: engine.lanes.video must be an integer, 0 or more (got "many"), '
        'or "none" for only the global limit, or a table of rules',
        "greenroom.toml:9: engine.keep_runs.count must be an integer, 0 or more (got true)",
        "greenroom.toml:10: engine.keep_runs.years is unknown: expected count or age",
        "greenroom.toml:13: gateway.port must be an integer between 0 and 65535 (got 65536)",
        "greenroom.toml:15: gateway.limits.rate must be a number above 0 (got 0)",
        "greenroom.toml:16: gateway.limits.deep is unknown: expected one of "
        + ", ".join(path[-1] for path in SETTINGS if path[:2] == ("gateway", "limits")),
        'greenroom.toml:19: gatway is unknown: did you mean "gateway"?',
        'greenroom.toml:23: logs.format must be text or json (got "xml")',
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("engine = 3", "greenroom.toml:1: engine must be a table (got 3)"),
        ("[engine]\nlanes = 3", "engine.lanes must be a table of limits, as in { images = 2 } (got 3)"),
        ("[engine]\nstore = 3", "engine.store must be an address, or a list of addresses"),
        ("[engine]\njobs = 'app.jobs'", "engine.jobs must be a module and a name in it"),
        ("[engine]\ndata_dir = ''", 'engine.data_dir must be a non-empty string (got "")'),
        ("[gateway]\nport = true", "gateway.port must be an integer between 0 and 65535 (got true)"),
        ("[gateway]\nallowed_hosts = [1]", 'gateway.allowed_hosts must be a list of strings, as in ["one"'),
        ("[gateway.limits]\nidle_timeout = 0", "gateway.limits.idle_timeout must be a duration above 0"),
        ("[gateway]\nport = 1\nport = 2", "greenroom.toml is not valid TOML: Cannot overwrite a value"),
    ],
)
def test_an_error_contains_the_expected_value(text: str, expected: str):
    [mistake] = mistakes(text)
    assert expected in mistake


def test_a_message_never_contains_a_password():
    for store in (
        "'postgresql://me:secret@'",
        "['postgresql://me:secret@db/x', 3]",
        "'postgresql://me:se@cret'",
    ):
        assert "secret" not in "".join(mistakes(f"[engine]\nstore = {store}"))
        assert "cret" not in "".join(mistakes(f"[engine]\nstore = {store}"))


def test_a_variable_that_is_no_setting_is_a_warning_because_others_set_such_too():
    read = configured(GREENROOM_MAX_CONCURENT="3", GREENROOM_PORT="tcp://10.0.0.1:80", GREENROOM_URL="x")
    assert read.warnings == (
        "the variable GREENROOM_MAX_CONCURENT is not a setting: did you mean GREENROOM_MAX_CONCURRENT?",
        "the variable GREENROOM_PORT is not a setting",
    )


def test_a_named_file_must_exist_and_the_default_file_is_optional():
    with pytest.raises(ConfigMistakes, match=r"cannot read elsewhere\.toml: No such file"):
        read_config("elsewhere.toml", environ={})
    Path("elsewhere.toml").write_text("[gateway]\nport = 5")
    assert read_config(environ={"GREENROOM_CONFIG": "elsewhere.toml"}).config.gateway.port == 5


def test_config_check_shows_settings_and_their_origins_without_passwords():
    Path("greenroom.toml").write_text("[engine]\nstore = 'postgresql://me:secret@db/x'\n")
    result = check()
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "engine.store = postgresql://me@db/x  (greenroom.toml:2)",
        "The configuration is valid.",
    ]
    [line] = check("--json").stdout.splitlines()
    assert json.loads(line) == {"ok": True, "settings": {"engine.store": "postgresql://me@db/x"}}


def test_config_check_exits_with_2_and_reports_all_errors():
    Path("greenroom.toml").write_text("[gateway]\nport = -1\nhots = 'x'\n")
    result = check()
    assert (result.exit_code, result.stdout) == (2, "")
    first, *rest = result.stderr.splitlines()
    assert first == "Error: 2 errors in the configuration:"
    assert [line.split(" ")[0] for line in rest] == ["greenroom.toml:2:", "greenroom.toml:3:"]
    result = check("--json")
    assert result.exit_code == 2
    assert [mistake["setting"] for mistake in json.loads(result.stdout)["mistakes"]] == [
        "gateway.port",
        "gateway.hots",
    ]


def test_config_check_checks_that_named_files_exist():
    Path("broken.py").write_text("import json\n1/0\n")
    Path("needy.py").write_text("import nothing_of_this_name\n")
    Path("app.py").write_text("import greenroom\njobs = greenroom.Jobs()\nother = 3\n")
    for jobs, told in [
        ("absent:jobs", "module 'absent' not found in "),
        ("broken:jobs", f"ZeroDivisionError: division by zero ({Path('broken.py').resolve()}:2)"),
        ("needy:jobs", "No module named 'nothing_of_this_name'"),
        ("app:missing", "has no 'missing'"),
        ("app:other", "app:other must be a greenroom.Jobs (got int)"),
    ]:
        Path("greenroom.toml").write_text(f"[engine]\njobs = '{jobs}'\n")
        result = check()
        assert result.exit_code == 2
        assert "greenroom.toml:2: engine.jobs cannot be loaded: " in result.stderr
        assert told in result.stderr
    Path("greenroom.toml").write_text(
        "[engine]\njobs = 'app:jobs'\n[gateway]\nhost = '0.0.0.0'\ntls_key = 'absent.pem'\n"
    )
    assert [line.split()[1] for line in check().stderr.splitlines()[1:]] == [
        "gateway.host",
        "gateway.tls_key",
        "gateway.tls_key",
    ]
    Path("greenroom.toml").write_text("[engine]\njobs = 'app:jobs'\n")
    assert check().exit_code == 0


def test_the_secret_of_webhooks_is_read_from_a_file_and_never_shown():
    secret = "the secret of webhooks of this test"
    Path("secret").write_text(f"{secret}\n")
    for settings in (f"webhook_secret = '{secret}'", "webhook_secret_file = 'secret'"):
        read = configured(f"[engine]\n{settings}\n")
        assert webhook_secret(read.config.engine) == secret
        for result in (check(), check("--json")):
            assert (result.exit_code, secret in result.output) == (0, False)
    for settings, told in [
        (
            "webhook_secret = 'the short one'",
            "at least 16 characters (got 13 characters)",
        ),
        ("webhook_secret = 'the short one'\nwebhook_secret_file = 'secret'", "at least 16 characters"),
        (f"webhook_secret = '{secret}'\nwebhook_secret_file = 'secret'", "cannot be combined"),
        ("webhook_secret_file = 'absent'", "cannot be read"),
    ]:
        Path("greenroom.toml").write_text(f"[engine]\n{settings}\n")
        result = check()
        assert (result.exit_code, told in result.stderr) == (2, True), result.output
        assert "the short one" not in result.output
        assert secret not in result.output


def test_the_receivers_of_lanes_are_checked_like_those_of_submissions():
    lanes = "lanes.images = {{ limit = 2, notify = '{}' }}\n"
    for settings, url, told in [
        ("", "https://example.org/", 'notify of lane "images" requires a secret'),
        ("webhook_secret = 'a secret of this test'\n", "http://10.0.0.1/", "is not public, and in none of"),
        ("", "ftp://example.org/", "does not begin with http:// or https://"),
    ]:
        Path("greenroom.toml").write_text(f"[engine]\n{settings}{lanes.format(url)}")
        result = check()
        assert result.exit_code == 2
        assert "engine.lanes" in result.stderr
        assert told in result.stderr
    allowed = "webhook_secret = 'a secret of this test'\nwebhook_networks = ['10.0.0.0/8']\n"
    Path("greenroom.toml").write_text(f"[engine]\n{allowed}{lanes.format('http://10.0.0.1/')}")
    assert check().exit_code == 0


def test_the_commands_of_the_store_take_the_configured_one(tmp_path: Path):
    Path("greenroom.toml").write_text("[engine]\nstore = 'sqlite:///configured.db'\n")
    result = runner().invoke(main, ["db", "upgrade"])
    assert result.stdout.startswith(f"sqlite:///{tmp_path}/configured.db: ")
    Path("greenroom.toml").write_text("[engine]\nstore = 'nonsense'\n")
    result = runner().invoke(main, ["db", "current"])
    assert result.exit_code == 2
    assert "greenroom.toml:2: engine.store" in result.stderr


def test_logs_are_text_or_json(capsys: pytest.CaptureFixture[str]):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        begin_logs(configured("[logs]\nformat = 'json'\nlevel = 'warning'").config.logs)
        logging.getLogger("greenroom").info("not written")
        logging.getLogger("greenroom").warning("%d runs\nwait", 3, extra={"run": "r1"})
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError:
            logging.getLogger("app").exception("it failed")
        first, second = map(json.loads, capsys.readouterr().err.splitlines())
        assert first["at"] > 0
        del first["at"]
        assert first == {"level": "warning", "logger": "greenroom", "message": "3 runs\nwait", "run": "r1"}
        assert second["error"].endswith("ZeroDivisionError: division by zero")
        begin_logs(configured("[logs]\nlevel = 'info'").config.logs)
        logging.getLogger("greenroom").info("for people")
        [line] = capsys.readouterr().err.splitlines()
        assert line.endswith(" INFO    greenroom: for people")
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def test_child_processes_require_jobs():
    Path("greenroom.toml").write_text("[engine]\nexecutors = 2")
    result = check()
    assert result.exit_code == 2
    assert "greenroom.toml:2: engine.executors requires jobs: child processes execute only" in result.output
    Path("greenroom.toml").write_text("[engine]\nexecutors = 0")
    assert check().exit_code == 0


def test_child_processes_log_as_the_server_with_their_id(capsys: pytest.CaptureFixture[str]):
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        for format in ("text", "json"):
            config = configured(f"[logs]\nformat = '{format}'\nlevel = 'warning'").config.logs
            begin_logs(config)
            assert child_logs.settings == {"format": format, "level": "warning"}
            begin_logs(config, executor="local-1")
            logging.getLogger("greenroom").warning("hello")
        text, line = capsys.readouterr().err.splitlines()
    finally:
        root.handlers[:], child_logs.settings = handlers, None
        root.setLevel(level)
    assert text.endswith(" WARNING greenroom: local-1: hello")
    assert json.loads(line)["executor"] == "local-1"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '{"a": {"job": "x", "every": 5}',
            "must be JSON, and is not valid: Expecting ',' delimiter in line 1",
        ),
        ("a=5", "must be JSON, and is not valid: Expecting value in line 1, column 1"),
        ('{"a": {"job": "x", "every": 5}, "a": {"job": "y", "every": 5}}', 'each key once (got "a" twice)'),
        ("[" * 100_000, "must be JSON, and is not valid: it is nested too deeply"),
    ],
)
def test_schedules_in_a_variable_are_json(text: str, told: str):
    with pytest.raises(ConfigMistakes) as caught:
        read_config(environ={"GREENROOM_SCHEDULES": text})
    assert "GREENROOM_SCHEDULES: schedules" in str(caught.value)
    assert told in str(caught.value)


def test_a_secret_that_is_not_text_is_refused_with_a_remedy():
    with pytest.raises(ConfigMistakes, match="webhook_secret must be text in UTF-8: create one with"):
        read_config(environ={"GREENROOM_WEBHOOK_SECRET": "a long secret \udcff of this test"})


def test_a_secret_of_spaces_is_short():
    with pytest.raises(ConfigMistakes, match=r"at least 16 characters \(got 0 characters\)"):
        read_config(environ={"GREENROOM_WEBHOOK_SECRET": " " * 40})


def test_the_file_of_the_secret_has_one_line_and_is_the_owners():
    Path("greenroom.toml").write_text("[engine]\nwebhook_secret_file = 'secret'\n")
    Path("secret").write_text("the secret of this test\nand another line\n")
    refused = check()
    assert refused.exit_code == 2
    assert 'webhook_secret_file "secret" must contain one line (got 2)' in refused.stderr
    Path("secret").write_text("the secret of this test\n")
    Path("secret").chmod(0o644)
    accepted = check()
    assert accepted.exit_code == 0
    warned = "is accessible to other users (mode 0644)"
    assert (warned in accepted.stderr) == (os.name == "posix")
    Path("secret").chmod(0o600)
    assert warned not in check().stderr


def test_digits_of_other_scripts_are_no_durations_or_rates():
    assert mistakes("[engine]\nshutdown_timeout = '٣m'")
    assert mistakes("[engine]\nlanes.a.rate = '٣/s'")


def test_a_file_that_is_not_utf8_is_named():
    Path("greenroom.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigMistakes, match=r"cannot read greenroom\.toml: it is not UTF-8"):
        read_config()
