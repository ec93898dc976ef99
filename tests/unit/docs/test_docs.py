"""The documentation tells the truth: links, configuration, commands, generated pages and names exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer.main
from pydantic import BaseModel

from clearway.cli.app import app as command_line
from clearway.cli.app import below
from clearway.config.configuration import Config, parse_config
from clearway.model.clock import SystemClock
from clearway.service import server
from clearway.telemetry.metrics import Metrics
from docs.reference import diagrams, generate

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LAUNCHER = (ROOT / "plugins/slurm/clearway-run").read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, *languages: str) -> Iterator[str]:
    return (text for language, text in FENCE.findall(page.read_text()) if language in languages)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


# -- links -----------------------------------------------------------------------------------------------------


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


@each_page
def test_internal_links_resolve(page: Path) -> None:
    for target in links(page):
        assert "://" not in target, f"{target}: links to elsewhere get old"
        file, _, anchor = unquote(target).partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = set[Path](), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", prose(page))
        todo += [(page.parent / target).resolve() for target in targets]
    assert set(PAGES) == reached


def named_files(page: Path) -> list[str]:
    found = (re.match(r"(daemon|deploy|docs|plugins|tests)/[\w./*-]*", name) for name in CODE.findall(prose(page)))
    return [path[0] for path in found if path and not path[0].startswith("deploy/.demo")]


@each_page
def test_files_of_the_repository_that_are_named_exist(page: Path) -> None:
    assert [name for name in named_files(page) if not (ROOT / name).exists()] == []


# -- configuration ---------------------------------------------------------------------------------------------


@each_page
def test_toml_blocks_are_good_configurations(page: Path) -> None:
    for text in blocks(page, "toml"):
        parse_config(text, str(page))


SECTIONS = {name: field.annotation for name, field in Config.model_fields.items() if name != "preemptors"}


def named_keys(page: Path) -> list[tuple[str, str]]:
    return re.findall(rf"`({'|'.join(SECTIONS)})\.([a-z_]+)`", page.read_text())


@each_page
def test_configuration_keys_that_are_named_exist(page: Path) -> None:
    for section, key in named_keys(page):
        if key in {"py", "conf"} and section != "slurm":
            continue  # a file
        model: Any = SECTIONS[section]
        assert issubclass(model, BaseModel)
        assert key in model.model_fields, f"{section}.{key}"


def test_the_page_says_which_keys_need_a_restart() -> None:
    wanted = parse_config(
        '[daemon]\nlog_format = "json"\npoll_interval = 9\n[planning]\nplanner = "greedy"\nsteps = 9\n'
        '[slurm]\ntimeout = 9\n[store]\nurl = "sqlite:///x"\n[api]\nport = 9\n'
        "[candidates]\nmin_runtime = 9\n[budget]\njobs_per_hour = 9\n[costs]\nnode_mib_s = 9\n"
        '[execution]\nretry_after = 9\n[[preemptors]]\nuser = ["u"]\n',
        "test",
    )
    taken, fixed = server.reloaded(Config(), wanted)
    assert taken.daemon.poll_interval == 9
    sentence = re.search(r"Changes of (.*?) need a restart", generate.page("configuration.md"), re.DOTALL)
    assert sentence is not None
    assert set(CODE.findall(sentence[1])) == set(fixed)


# -- commands --------------------------------------------------------------------------------------------------


def command_lines(page: Path) -> Iterator[list[str]]:
    """The words of each command in console blocks (after a $) and in sh blocks."""
    lines = [
        line.removeprefix("$ ")
        for text in blocks(page, "console")
        for line in text.replace("\\\n", " ").splitlines()
        if line.startswith("$ ")
    ]
    lines += [line for text in blocks(page, "sh") for line in text.replace("\\\n", " ").splitlines()]
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise AssertionError(f"{line}: {error}") from None
        yield words


def calls(page: Path, program: str) -> Iterator[list[str]]:
    """The arguments of each call of a program, wherever it stands in the line."""
    for words in command_lines(page):
        starts = [index for index, word in enumerate(words) if word == program or word.endswith(f"/{program}")]
        for start in starts:
            before = words[start - 1] if start else ""
            # "systemctl stop clearway", "sudo -u clearway clearway": not every word of this name is the program.
            if start and before not in {"clearway", "exec", "|", "&&", ";"}:
                continue
            if words[start + 1 : start + 2] == [program]:
                continue
            arguments = words[start + 1 :]
            end = next((index for index, word in enumerate(arguments) if word in {"|", "&&", ";"}), len(arguments))
            yield arguments[:end]


def check_clearway(arguments: list[str]) -> None:
    command: Any = typer.main.get_command(command_line)
    options = {name for item in command.params for name in item.opts}
    rest = list(arguments)
    while rest and (commands := below(command)):
        word = rest.pop(0)
        if word.startswith("-"):
            assert word in options, f"clearway has no option {word}"
            continue
        assert word in commands, f"clearway has no command {word}"
        command = commands[word]
        options = {"--help"} | {name for item in command.params for name in item.opts}
    for word in rest:
        if word == "--":  # the rest is another command's
            return
        if word.startswith("-"):
            assert word.partition("=")[0] in options, f"{command.name} has no option {word}"


@each_page
def test_commands_exist(page: Path) -> None:
    for arguments in calls(page, "clearway"):
        check_clearway(arguments)
    for arguments in calls(page, "deploy/demo"):
        check_clearway(["simulate-cluster", *arguments])
    for inline in CODE.findall(prose(page)):
        if re.match(r"clearway [a-z]", inline):
            check_clearway([word for word in shlex.split(inline)[1:] if word != "..."])


@each_page
def test_options_of_the_launcher_exist(page: Path) -> None:
    for arguments in calls(page, "clearway-run"):
        own = arguments[: arguments.index("--")]
        assert all(f"{word} " in LAUNCHER for word in own if word.startswith("--")), own


def test_commands_are_really_looked_at() -> None:
    launched = list(calls(ROOT / "docs/howto/make-a-job-preemptable.md", "clearway-run"))
    assert any(word.startswith("--") for words in launched for word in words[: words.index("--")])
    install = list(calls(ROOT / "docs/howto/install.md", "clearway"))
    assert ["check-config", "/etc/clearway/clearway.toml"] in install
    assert ["evictions", "list", "--state", "active"] in install
    with pytest.raises(AssertionError, match="no command"):
        check_clearway(["evictions", "forget", "1"])
    with pytest.raises(AssertionError, match="no option"):
        check_clearway(["plan", "--node", "1"])


def test_every_option_of_the_launcher_is_explained() -> None:
    options = set(re.findall(r"^  (--[a-z-]+)", LAUNCHER, re.MULTILINE))
    page = (ROOT / "docs/howto/make-a-job-preemptable.md").read_text()
    assert options
    assert options <= set(re.findall(r"^\| `(--[a-z-]+)", page, re.MULTILINE))


# -- names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", generate.PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    found = (ROOT / "docs/reference" / name).read_text()
    assert found == generate.page(name), "run .venv/bin/python docs/reference/generate.py"


def test_state_diagrams_are_up_to_date() -> None:
    found = diagrams.PAGE.read_text()
    assert found == diagrams.with_diagrams(found), "run .venv/bin/python docs/reference/diagrams.py"


def resolve(dotted: str) -> Any:
    """The module or what is in it; fields of data classes count as well."""
    parts = dotted.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            found = getattr(found, part)
        return found
    raise AttributeError(dotted)


NO_MODULES = {"toml", "json", "service", "py", "checkpointers", "commands", "schedulers"}  # files, entry points


def named_code(page: Path) -> list[str]:
    found = re.findall(r"`(clearway(?:_lab)?(?:\.\w+)+)`", page.read_text())
    return [dotted for dotted in found if dotted.rpartition(".")[2] not in NO_MODULES]


@each_page
def test_names_in_the_code_exist(page: Path) -> None:
    for dotted in named_code(page):
        resolve(dotted)


NAMES: dict[str, Callable[[Path], Iterable[Any]]] = {
    "links": links,
    "files": named_files,
    "TOML": lambda page: blocks(page, "toml"),
    "keys": named_keys,
    "commands": lambda page: calls(page, "clearway"),
    "the demo": lambda page: calls(page, "deploy/demo"),
    "the launcher": lambda page: calls(page, "clearway-run"),
    "code": named_code,
}


@pytest.mark.parametrize("kind", NAMES)
def test_each_kind_of_name_is_on_some_page(kind: str) -> None:
    """Else the tests above, which pass over a page without any, would say nothing."""
    assert any(True for page in PAGES for _ in NAMES[kind](page))


def test_the_glossary_names_the_code() -> None:
    rows = re.findall(r"^\| ([a-z -]+) \| .* \| ?(.*?) ?\|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    words = [word for word, _ in rows if word != "word"]
    assert len(words) > 30
    assert words == sorted(words)
    assert all(code.strip() for _, code in rows)


@each_page
def test_metrics_that_are_named_exist(page: Path) -> None:
    known = {sample.name for metric in Metrics(SystemClock()).registry.collect() for sample in metric.samples}
    known |= {name for metric in Metrics(SystemClock()).registry.collect() for name in (metric.name,)}
    known |= {f"{name}_total" for name in known}
    role = ROOT / "deploy/ansible/roles/clearway/defaults/main.yml"
    known |= set(re.findall(r"^(clearway_\w+):", role.read_text(), re.MULTILINE))
    for name in re.findall(r"`(clearway_[a-z][a-z_]+)(?:\{.*?\})?`", page.read_text()):
        assert name in known or name in {"clearway_checkpoint", "clearway_lab"}, name
