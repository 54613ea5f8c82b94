"""Every program of tests/checks under every way of planning, and the shared checks if there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from compare import close, identities, shared_bytes, tensors

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "checks"))
from programs import PROGRAMS  # noqa: E402

WAYS = {
    "native": {},
    "extern": {"kernels": "extern"},
    "no passes": {"passes_off": {"normalise", "elide", "place"}},
    "no elision": {"passes_off": {"elide"}},
    "RDFS": {"order": "RDFS"},
    "verify": {"verify": 1},
    "no fallback": {"strict": {"fallbacks"}},
}


def run(fn, built, num_arguments):
    """Results of a call, or the error it raised, and all tensors afterwards."""
    torch.manual_seed(0)
    try:
        result = fn(*built[:num_arguments])
    except (IndexError, RuntimeError) as error:
        result = error
    return result, (built, None if isinstance(result, Exception) else result)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_eagers_result(name, way):
    program = PROGRAMS[name]
    # Sizes that may change are a fallback of their own.
    dynamic = False if way == "no fallback" else None
    options = WAYS[way]
    compiled = torch.compile(
        program.fn, backend="uncopy", fullgraph=True, dynamic=dynamic, options=options
    )
    for build in (*program.builders, program.builders[0]):
        expected, eager_state = run(program.fn, build(), program.num_arguments)
        result, state = run(compiled, build(), program.num_arguments)
        assert isinstance(result, Exception) == isinstance(expected, Exception), result
        if isinstance(result, Exception):
            assert type(result) is type(expected)
        for ours, eagers in zip(tensors(state), tensors(eager_state), strict=True):
            assert close(ours, eagers)
            assert ours.stride() == eagers.stride()
        assert shared_bytes(state) == shared_bytes(eager_state)
        assert identities(state) == identities(eager_state)


def shared_checks():
    path = ROOT.parent / "shared" / "checks" / "alias_checks.py"
    if not path.exists():
        pytest.skip("the shared checks are not beside this repository")
    return path


def run_shared(options):
    """Lines of a run of the shared checks."""
    environment = {**os.environ, **{f"UNCOPY_{k.upper()}": v for k, v in options.items()}}
    command = [sys.executable, str(shared_checks()), "--backend", "uncopy"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=550)
    return done.stdout.splitlines()


@pytest.mark.parametrize("way", [{}, {"kernels": "extern"}, {"verify": "2"}])
def test_the_shared_checks_pass(way):
    if way and not os.environ.get("UNCOPY_TEST_ALL"):
        pytest.skip("a minute each: with UNCOPY_TEST_ALL=1")
    lines = run_shared(way)
    assert [line for line in lines if line.startswith("DIFF")] == []
    passed = int(lines[-1].split()[0])
    assert passed >= 65, lines[-1]


def test_at_least_55_shared_checks_need_no_fallback():
    lines = run_shared({"strict": "fallbacks"})
    passed = int(lines[-1].split()[0])
    assert passed >= 55, lines[-1]
    reasons = [line for line in lines if "StrictError" in line]
    failed = [line for line in lines if line.startswith("DIFF")]
    assert len(reasons) >= len(failed), "each other is named with its reason"
