"""Options: names, types, precedence, and what explain says of them."""

import pytest
import torch

import uncopy
from uncopy.backend import make_backend
from uncopy.options import OPTIONS, resolve


def test_defaults():
    options = resolve()
    assert options.order == "program"
    assert options.kernels == "native"
    assert options.strict == frozenset()
    assert options.verify == 0
    assert set(options.sources.values()) == {"default"}


def test_an_argument_goes_over_options_over_environment_over_default(monkeypatch):
    monkeypatch.setenv("UNCOPY_ORDER", "BFS")
    assert resolve().order == "BFS"
    assert resolve(options={"order": "DFS"}).order == "DFS"
    options = resolve(arguments={"order": "RDFS"}, options={"order": "DFS"})
    assert (options.order, options.sources["order"]) == ("RDFS", "argument")
    assert resolve(options={"order": "DFS"}).sources["order"] == "options"
    assert resolve().sources["order"] == "environment"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("strict", "1", {"copies", "fallbacks"}),
        ("strict", "externs,replans", {"externs", "replans"}),
        ("verify", "3", 3),
        ("overlap", "true", True),
        ("passes_off", "elide, place", {"elide", "place"}),
        ("dump", "py", "py"),
        ("kernels", "extern", "extern"),
        ("threads", "2", 2),
    ],
)
def test_the_environment_is_read(monkeypatch, name, text, value):
    monkeypatch.setenv(f"UNCOPY_{name.upper()}", text)
    assert getattr(resolve(), name) == value


def test_strict_is_a_switch_or_a_set():
    assert resolve({"strict": True}).strict == {"copies", "fallbacks"}
    assert resolve({"strict": False}).strict == frozenset()
    assert resolve({"strict": {"externs"}}).strict == {"externs"}
    assert resolve({"strict": "misses"}).strict == {"misses"}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"striqt": True}, ValueError, "strict, verify, order"),
        ({"order": "fast"}, ValueError, "'StableRDFS'"),
        ({"order": 3}, TypeError, "'BFS'"),
        ({"strict": 1}, TypeError, "True, False or"),
        ({"strict": {"copy"}}, ValueError, "'copies'"),
        ({"verify": True}, TypeError, "integer"),
        ({"verify": -1}, ValueError, "0 up"),
        ({"overlap": 1}, TypeError, "True or False"),
        ({"kernels": "cuda"}, ValueError, "'extern'"),
        ({"dump": "svg"}, ValueError, "'txt'"),
        ({"dump_path": 4}, TypeError, "folder"),
        ({"passes_off": {"fuse"}}, ValueError, "'elide'"),
        ({"frozen": 3}, TypeError, "names"),
        ({"threads": "two"}, TypeError, "integer"),
        ({"precision": "double"}, ValueError, "'eager'"),
    ],
)
def test_wrong_options_raise_naming_what_is_allowed(given, error, words):
    with pytest.raises(error) as raised:
        resolve(given)
    assert words in str(raised.value)
    name = next(iter(given))
    assert name in str(raised.value)


def test_a_wrong_environment_variable_is_named(monkeypatch):
    monkeypatch.setenv("UNCOPY_VERIFY", "often")
    with pytest.raises(TypeError, match="UNCOPY_VERIFY"):
        resolve()


def test_wrong_options_of_torch_compile_raise_their_own_type():
    compiled = torch.compile(lambda x: x + 1, backend="uncopy", options={"striqt": True})
    with pytest.raises(ValueError, match="no option 'striqt'"):
        compiled(torch.ones(2))
    with pytest.raises(TypeError, match="order"):
        torch.compile(lambda x: x + 2, backend="uncopy", options={"order": 1})(torch.ones(2))


def test_wrong_options_of_make_backend_raise_at_once():
    with pytest.raises(ValueError, match="no option"):
        make_backend({"color": "red"}, [])


def test_explain_shows_each_option_with_its_source_and_what_has_no_effect():
    def fn(x):
        return x + 1

    words = uncopy.explain(fn, torch.ones(2), order="DFS", threads=2, precision="fused", frozen="x")
    assert "order = DFS (argument)" in words
    assert "kernels = native (default)" in words
    for name in ("precision", "frozen"):
        assert f"note: {name}" in words


def test_notes_of_a_backend_are_shown():
    backend = make_backend({}, ["mode=reduce-overhead: adds nothing"])
    compiled = torch.compile(lambda x: x + 1, backend=backend)
    compiled(torch.ones(2))
    assert "note: mode=reduce-overhead: adds nothing" in uncopy.plans()[0].explain()


def test_info_lists_versions_probes_and_options():
    info = uncopy.info()
    assert info["version"] == uncopy.__version__
    assert info["torch"] == torch.__version__
    assert set(info["options"]) == set(OPTIONS)
    assert all(isinstance(is_fast, bool) for is_fast in info["probes"].values())
