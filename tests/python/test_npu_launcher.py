"""The command line of uncopy.npu: a script runs as Python would run it, alone or on two ranks."""

import json
import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import uncopy.npu
from uncopy.npu.__main__ import parse_command_line

PACKAGES = Path(uncopy.npu.__file__).absolute().parents[2]
SEEDS = Path(__file__).resolve().parents[3] / "shared" / "seed"

# o = (x @ w1) @ w2 of the gathered buffer; w1 and w2 are views of it, made inside or outside.
GATHER_SCRIPT = """
import os
import sys

import torch
import torch.distributed as dist
import torch_npu
import torchair
from torchair.configs.compiler_config import CompilerConfig

FORM = sys.argv[1]
torchair.patch_for_hcom()
rank = int(os.environ["LOCAL_RANK"])
torch.npu.set_device(f"npu:{rank}")
dist.init_process_group(backend="hccl")
size = dist.get_world_size()

config = CompilerConfig()
config.experimental_config.topology_sorting_strategy = "StableRDFS"
if rank == 0:
    config.debug.graph_dump.type = "py"
    config.debug.graph_dump.path = "dumps"


def weights(buffer):
    return buffer[:32].view(4, 8), buffer[32:].view(8, 4)


@torch.compile(
    backend=torchair.get_npu_backend(compiler_config=config), dynamic=False, fullgraph=True
)
def step(x, buffer, part, *views):
    w1, w2 = views if views else weights(buffer)
    dist.all_gather_into_tensor(buffer, part)
    torchair.scope.npu_wait_tensor(w1, buffer)
    return torch.matmul(torch.matmul(x, w1), w2)


x = torch.ones(2, 4, device="npu", dtype=torch.bfloat16)
buffer = torch.zeros(64, device="npu", dtype=torch.bfloat16)
part = torch.arange(64 // size, device=torch.device("npu", rank), dtype=torch.bfloat16)
views = weights(buffer) if FORM == "outside" else ()
with torch_npu.profiler.profile(
    activities=[torch_npu.profiler.ProfilerActivity.CPU, torch_npu.profiler.ProfilerActivity.NPU],
    on_trace_ready=torch_npu.profiler.tensorboard_trace_handler("traces", f"rank{rank}"),
    record_shapes=True,
    with_flops=False,
    with_modules=False,
    experimental_config=torch_npu.profiler._ExperimentalConfig(
        aic_metrics=torch_npu.profiler.AiCMetrics.PipeUtilization,
        profiler_level=torch_npu.profiler.ProfilerLevel.Level1,
        l2_cache=False,
    ),
):
    o = step(x, buffer, part, *views)
torch.npu.synchronize()

gathered = torch.arange(64 // size, dtype=torch.bfloat16).repeat(size)
assert torch.equal(buffer, gathered), buffer
w1, w2 = weights(gathered)
assert torch.equal(o, x @ w1 @ w2), o
dist.barrier(device_ids=[rank])
if rank == 0:
    print("right on", size)
dist.destroy_process_group()
"""


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def launch(
    folder: Path, *words: str, ranks: int = 0, python: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command line in a folder, under torchrun when ranks is not 0."""
    variables = os.environ | {"PYTHONPATH": str(PACKAGES)} | environment
    start = [sys.executable, *python]
    if ranks:
        port = f"--master_port={free_port()}"
        start += ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", port]
    command = [*start, "-m", "uncopy.npu", *words]
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300
    )


def one_rank() -> dict[str, str]:
    """What torchrun sets, for a world of one."""
    return {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(free_port()),
    }


def write(path: Path, text: str) -> Path:
    """A file with the text, in a folder that is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def check_traces(folder: Path, ranks: int) -> None:
    """One trace that loads for each rank."""
    traces = sorted(folder.glob("*.pt.trace.json"))
    assert len(traces) == ranks
    for trace in traces:
        events = json.loads(trace.read_text())["traceEvents"]
        assert any("name" in event for event in events)


def test_a_gather_script_runs_in_a_world_of_one(tmp_path):
    write(tmp_path / "gather.py", GATHER_SCRIPT)
    result = launch(tmp_path, "gather.py", "outside", UNCOPY_STRICT="1", **one_rank())
    assert result.returncode == 0, result.stderr
    assert result.stdout == "right on 1\n"
    check_traces(tmp_path / "traces", 1)
    (dump,) = (tmp_path / "dumps").glob("*.py")
    assert "uncopy.wait" in dump.read_text()


@pytest.mark.parametrize("form", ["inside", "outside"])
def test_a_gather_script_runs_on_two_ranks(tmp_path, form):
    write(tmp_path / "gather.py", GATHER_SCRIPT)
    result = launch(tmp_path, "gather.py", form, ranks=2, UNCOPY_STRICT="1")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "right on 2\n"
    check_traces(tmp_path / "traces", 2)
    assert len(list((tmp_path / "dumps").iterdir())) == 1


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the scripts that the project began from are absent")
@pytest.mark.parametrize("form", ["inside", "outside"])
def test_the_first_scripts_run_unmodified_on_two_ranks(tmp_path, form):
    script = str(SEEDS / f"opp_views_{form}.py")
    result = launch(tmp_path, script, ranks=2, UNCOPY_STRICT="1")
    assert result.returncode == 0, result.stderr
    numbers = [float(number) for number in re.findall(r"-?\d+\.", result.stdout)]
    assert numbers[0] == -234496.0
    assert len(numbers) == 16
    check_traces(tmp_path / "op_test", 1)


def test_a_script_sees_what_python_would_show_it(tmp_path):
    report = """
        import sys
        import helper
        assert vars(sys.modules["__main__"]) is globals()
        print(__name__, __file__, __package__, __spec__, sys.argv, sys.path[0], helper.word)
    """
    write(tmp_path / "inner" / "report.py", textwrap.dedent(report))
    write(tmp_path / "inner" / "helper.py", "word = 'from its folder'\n")
    words = ("inner/report.py", "one", "--help", "-x", "--", "two")
    by_python = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    result = launch(tmp_path, *words)
    assert result.stdout == by_python.stdout != ""


def test_a_script_is_found_with_a_safe_path(tmp_path):
    write(tmp_path / "hello.py", "import sys; print(sys.path[0] != sys.argv[1])\n")
    result = launch(tmp_path, "hello.py", str(tmp_path), python=("-P",))
    assert result.stdout == "True\n"


def test_an_exception_shows_the_scripts_own_traceback(tmp_path):
    write(tmp_path / "deep.py", "def fail():\n    raise KeyError('lost')\n")
    write(tmp_path / "raises.py", "import deep\n\n\ndef main():\n    deep.fail()\n\n\nmain()\n")
    result = launch(tmp_path, "raises.py")
    assert result.returncode == 1
    lines = [line.strip() for line in result.stderr.splitlines()]
    assert lines[0] == "Traceback (most recent call last):"
    assert re.findall(r"in (\w+|<module>)$", result.stderr, re.MULTILINE) == [
        "<module>",
        "main",
        "fail",
    ]
    assert lines[-1] == "KeyError: 'lost'"
    assert "runpy" not in result.stderr
    assert "uncopy" not in result.stderr


def test_a_script_that_does_not_compile_shows_its_line_only(tmp_path):
    write(tmp_path / "broken.py", "x = 1\ny = (\n")
    result = launch(tmp_path, "broken.py")
    assert result.returncode == 1
    assert 'broken.py", line 2' in result.stderr
    assert result.stderr.splitlines()[-1].startswith("SyntaxError:")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("import sys; sys.exit('no way')", 1, "no way\n"),
        ("raise KeyboardInterrupt", -2, None),
    ],
)
def test_the_exit_code_is_the_scripts(tmp_path, line, code, text):
    write(tmp_path / "leaves.py", line + "\n")
    result = launch(tmp_path, "leaves.py")
    assert result.returncode == code
    assert text is None or result.stderr == text


def test_help_explains(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_command_line(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    for word in ("python -m uncopy.npu", "npu", "hccl", "torchrun", "real torch_npu", "script"):
        assert word in shown


@pytest.mark.parametrize(
    ("words", "problem"),
    [([], "required: script\n"), (["absent.py"], "can't open 'absent.py'")],
)
def test_a_command_line_without_a_script_says_so(capsys, words, problem):
    with pytest.raises(SystemExit) as caught:
        parse_command_line(words)
    assert caught.value.code == 2
    assert problem in capsys.readouterr().err


def test_processes_that_the_script_spawns_get_the_device_too(tmp_path):
    script = """
        import os
        import sys
        import torch
        import torch_npu
        import torch.distributed as dist
        import torch.multiprocessing as mp
        import helper

        def work(rank, size, port):
            os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=port)
            torch.npu.set_device(rank)
            dist.init_process_group("hccl", rank=rank, world_size=size)
            x = torch.ones(1, device=f"npu:{rank}")
            dist.all_reduce(x)
            assert x.item() == size
            print(f"{__name__} {helper.word} {sys.argv[1:]}\\n", end="", flush=True)
            dist.destroy_process_group()

        if __name__ == "__main__":
            mp.spawn(work, args=(2, sys.argv[1]), nprocs=2)
    """
    write(tmp_path / "inner" / "spawns.py", textwrap.dedent(script))
    write(tmp_path / "inner" / "helper.py", "word = 'helped'\n")
    port = str(free_port())
    result = launch(tmp_path, "inner/spawns.py", port)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [f"__mp_main__ helped ['{port}']"] * 2


def test_a_real_torch_npu_is_left_alone(tmp_path):
    write(tmp_path / "real" / "torch_npu" / "__init__.py", "word = 'the real one'\n")
    write(
        tmp_path / "script.py",
        "import torch, torch_npu\nprint(torch_npu.word, hasattr(torch, 'npu'))\n",
    )
    path = os.pathsep.join([str(PACKAGES), str(tmp_path / "real")])
    result = launch(tmp_path, "script.py", PYTHONPATH=path, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "the real one False\n"
    assert "left alone" in result.stderr
