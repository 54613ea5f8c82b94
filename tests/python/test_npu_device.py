"""Device "npu" as the CPU's memory, torch.npu, and the profiler.

Installing the stand-ins cannot be undone, so each script below runs in a process of its own; each
function of it is one statement about them.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import uncopy.npu
from uncopy.npu import profiler
from uncopy.npu.device import cpu_for_npu, npu_index

PACKAGES = Path(uncopy.npu.__file__).absolute().parents[2]
HEAD = """
import io
import torch
import torch_npu
import torchair

CPU = torch.device("cpu")
ones = torch.ones(2, 2)


def raises(kind, word, call):
    try:
        call()
    except kind as error:
        assert word in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def compiled(fn, *args):
    torch._dynamo.reset()
    return torch.compile(fn, backend=torchair.get_npu_backend(), fullgraph=True)(*args)
"""
TAIL = """
for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
        print(name)
"""

DEVICE_CHECKS = """
def check_factories_and_moves_give_the_cpu():
    npu = torch.device("npu", 1)
    assert (npu.type, npu.index, str(npu)) == ("npu", 1, "npu:1")
    for device in ("npu", "npu:0", npu):
        assert torch.zeros(2, device=device).device == CPU
        assert ones.to(device).data_ptr() == ones.data_ptr()
        assert ones.to(device=device, dtype=torch.bfloat16).device == CPU
        assert ones.new_empty(2, device=device).device == CPU
        assert torch.nn.Linear(2, 2, device=device).to(device).weight.device == CPU


def check_methods_of_tensors_and_modules():
    assert ones.npu() is ones and ones.npu(0, non_blocking=True) is ones and ones.is_npu
    module = torch.nn.Linear(2, 2)
    assert module.npu(0) is module


def check_default_devices():
    torch.set_default_device("npu:0")
    assert torch.zeros(1).device == CPU
    torch.set_default_device(None)
    with torch.device("npu"):
        assert torch.zeros(1).device == CPU


def check_autocast():
    for cast in (torch.autocast("npu", dtype=torch.bfloat16),
                 torch.npu.amp.autocast(dtype=torch.bfloat16)):
        with cast:
            assert (ones @ ones).dtype == torch.bfloat16


def check_generators_and_seeds():
    generator = torch.Generator(device="npu:0").manual_seed(1)
    assert isinstance(generator, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    first = torch.randn(2, generator=generator, device="npu")
    assert torch.equal(first, torch.randn(2, generator=torch.Generator().manual_seed(1)))
    for seed in (torch.manual_seed, torch.npu.manual_seed, torch.npu.manual_seed_all):
        seed(3)
        assert torch.npu.initial_seed() == 3
        state = torch.npu.get_rng_state("npu:0")
        first = torch.randn(2, device="npu")
        torch.npu.set_rng_state(state)
        assert torch.equal(first, torch.randn(2))


def check_load():
    for place in ("npu:0", torch.device("npu"), {"cpu": "npu:0"}):
        file = io.BytesIO()
        torch.save(ones, file)
        file.seek(0)
        loaded = torch.load(file, map_location=place)
        assert torch.equal(loaded, ones) and loaded.device == CPU


def check_other_strings_pass():
    result = torch.einsum("npu,pu->npu", torch.ones(1, 2, 3), torch.ones(2, 3))
    assert result.shape == (1, 2, 3)


def check_threads():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        zeros = list(pool.map(lambda n: torch.zeros(n, device="npu"), range(4)))
    assert all(each.device == CPU for each in zeros)


def check_no_accelerator_is_announced():
    assert not torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() is None


def check_compiled_functions():
    assert compiled(lambda x: x + torch.zeros(2, 2, device="npu:0"), ones).device == CPU
    npu = torch.device("npu", 0)
    assert compiled(lambda x: x + torch.zeros(2, 2, device=npu), ones).device == CPU
    assert compiled(lambda x: x.npu().to("npu:0") + 1, ones).tolist() == [[2, 2], [2, 2]]
    assert compiled(lambda x: x + 1 if x.is_npu else x, ones).tolist() == [[2, 2], [2, 2]]

    def cast(x):
        with torch.autocast("npu", dtype=torch.bfloat16):
            return x @ x

    assert compiled(cast, ones).dtype == torch.bfloat16
"""

RUNTIME_CHECKS = """
def check_modules_are_importable_by_name():
    import importlib.util
    import torch.npu
    import torch_npu.npu.amp
    import torch_npu.profiler
    import torchair.scope
    from torch.npu.amp import autocast
    from torchair.configs.compiler_config import CompilerConfig
    from torchair.inference import cache_compile, set_dim_gears

    assert torch_npu.npu is torch.npu is torch.get_device_module("npu")
    assert importlib.util.find_spec("torch_npu") is torch_npu.__spec__
    assert CompilerConfig is torchair.CompilerConfig


def check_an_absent_name_says_so():
    raises(AttributeError, "torch_npu.npu_rms_norm does not exist", lambda: torch_npu.npu_rms_norm)
    assert not hasattr(torchair, "ops")


def check_set_device():
    assert torch.npu.current_device() == 0
    for device, index in (("npu:3", 3), (1, 1), (torch.device("npu:2"), 2), ("npu", 2)):
        torch.npu.set_device(device)
        assert torch.npu.current_device() == index
    with torch.npu.device(5):
        assert torch.npu.current_device() == 5
    assert torch.npu.current_device() == 2
    raises(ValueError, "not 'cuda:0'", lambda: torch.npu.set_device("cuda:0"))
    raises(ValueError, "0 or more", lambda: torch.npu.set_device(-1))
    assert torch.npu.is_available() and torch.npu.device_count() == 1


def check_streams_and_events():
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        start.record()
        stream.wait_stream(torch.npu.current_stream())
        end.record(stream)
    torch.npu.synchronize()
    assert start.elapsed_time(end) >= 0 and end.query()
    raises(RuntimeError, "recorded", lambda: start.elapsed_time(torch.npu.Event()))

    def fn(x):
        side, event = torch.npu.Stream(), torch.npu.Event()
        with torch.npu.stream(side):
            y = x + 1
            event.record()
        torch.npu.current_stream().wait_stream(side)
        event.wait()
        torch.npu.synchronize()
        return y

    assert compiled(fn, ones).tolist() == [[2, 2], [2, 2]]


def check_memory_queries():
    torch.npu.empty_cache()
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.memory_allocated() == torch.npu.max_memory_reserved("npu:0") == 0
    free, total = torch.npu.mem_get_info()
    assert 0 < free <= total == torch.npu.get_device_properties(0).total_memory


def check_an_order_mark_stays_in_the_graph():
    seen = []

    def backend(graph, example_inputs):
        seen.extend(node.target for node in graph.graph.nodes)
        return graph.forward

    def fn(x, y):
        torchair.scope.npu_wait_tensor(x, y)
        return x + 1

    assert torchair.scope.npu_wait_tensor(ones, ones) is ones
    torch.compile(fn, backend=backend, fullgraph=True)(ones, ones)
    assert torch.ops.uncopy.wait.default in seen


def check_an_order_mark_lets_gradients_pass():
    x = torch.ones(2, requires_grad=True)
    fn = lambda x: torchair.scope.npu_wait_tensor(x * 2, x) * 3
    compiled(fn, x).sum().backward()
    assert x.grad.tolist() == [6, 6]


def check_backends_by_name():
    for backend, options in (("npu", None), ("npugraph_ex", {"clone_input": False})):
        torch._dynamo.reset()
        fn = torch.compile(lambda x: x + 1, backend=backend, options=options, fullgraph=True)
        assert fn(ones).tolist() == [[2, 2], [2, 2]]
    for backend, options, kind, word in (
        ("npu", {"order": "DFS"}, TypeError, "get_npu_backend"),
        ("npugraph_ex", {"clone_inputs": False}, ValueError, "'clone_input'"),
        ("npugraph_ex", {"clone_input": 0}, TypeError, "True or False"),
    ):
        torch._dynamo.reset()
        fn = torch.compile(lambda x: x + 1, backend=backend, options=options, fullgraph=True)
        raises(kind, word, lambda: fn(ones))


def check_helpers():
    config = torchair.CompilerConfig()
    fn = torchair.inference.cache_compile(lambda x: x + 1, config=config)
    assert fn(ones).tolist() == [[2, 2], [2, 2]]
    torchair.inference.set_dim_gears(ones, {0: [1, 2]})
    torchair.use_internal_format_weight(torch.nn.Linear(2, 2))
    assert torch_npu.npu_format_cast(ones, 29) is ones and torch_npu.get_npu_format(ones) == 2
    raises(NotImplementedError, "no offline graph", lambda: torchair.dynamo_export(ones))


def check_installing_again_changes_nothing():
    from uncopy.npu import has_torch_npu, install

    before = torch.npu, torch.Tensor.npu, torch.Generator
    assert install() and not has_torch_npu()
    assert (torch.npu, torch.Tensor.npu, torch.Generator) == before
"""

GROUP_CHECKS = """
import os
import socket
import torch.distributed as dist

with socket.socket() as probe:
    probe.bind(("localhost", 0))
    port = probe.getsockname()[1]
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT=str(port))


def check_hccl_is_a_group_on_the_cpu():
    assert dist.is_hccl_available()
    dist.init_process_group("hccl", device_id=torch.device("npu:0"))
    assert dist.get_backend() == "hccl"
    x = torch.ones(2, device="npu")
    dist.all_reduce(x)
    dist.barrier(device_ids=[3])
    dist.barrier()
    gathered = [None]
    dist.all_gather_object(gathered, "word")
    assert gathered == ["word"] and x.tolist() == [1, 1]
    dist.new_group([0], backend="hccl")


def check_a_mesh_of_npus_is_one_of_cpus():
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = dist.init_device_mesh("npu", (1,))
    assert mesh.device_type == "cpu"
    tensor = distribute_tensor(torch.ones(2, 2, device="npu"), mesh, [Shard(0)])
    assert tensor.full_tensor().shape == (2, 2)


def check_data_parallel_takes_device_indices():
    module = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Linear(2, 2).npu(), device_ids=[0], output_device=0
    )
    module(ones).sum().backward()
    dist.destroy_process_group()


def check_a_group_by_device():
    dist.init_process_group("npu:hccl")
    dist.all_reduce(torch.ones(1, device="npu"))
    dist.destroy_process_group()
"""

PROFILER_CHECKS = """
import json
from pathlib import Path


def check_each_step_of_a_schedule_writes_a_trace():
    profiler = torch_npu.profiler
    with profiler.profile(
        activities=[profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=1, repeat=2),
        on_trace_ready=profiler.tensorboard_trace_handler("traces", analyse_flag=False),
        profile_memory=True,
    ) as prof:
        for _ in range(6):
            with profiler.record_function("marked"):
                ones @ ones
            prof.step()
    traces = list(Path("traces").glob("*.pt.trace.json"))
    assert len(traces) == 2
    for trace in traces:
        names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
        assert {"aten::mm", "marked"} <= names
"""


@pytest.mark.parametrize(
    "checks",
    [
        pytest.param(DEVICE_CHECKS, id="device"),
        pytest.param(RUNTIME_CHECKS, id="runtime"),
        pytest.param(GROUP_CHECKS, id="group"),
        pytest.param(PROFILER_CHECKS, id="profiler"),
    ],
)
def test_a_script_on_npu_runs_on_the_cpu(tmp_path, checks):
    script = tmp_path / "script.py"
    script.write_text(HEAD + checks + TAIL)
    result = subprocess.run(
        [sys.executable, "-m", "uncopy.npu", "script.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(PACKAGES)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    wanted = [line[4:].partition("(")[0] for line in checks.splitlines() if "def check_" in line]
    assert result.stdout.splitlines() == wanted


def test_devices_are_mapped_by_their_exact_name():
    assert cpu_for_npu("npu") == cpu_for_npu("npu:7") == "cpu"
    for other in ("npus", "npu,p->n", "cpu", "cuda:0", torch.device("cpu"), 3, None):
        assert cpu_for_npu(other) is other


def test_an_index_is_read_from_what_scripts_name():
    assert [npu_index(device, 4) for device in (None, 0, 2)] == [4, 0, 2]
    with pytest.raises(ValueError, match="expected an NPU"):
        npu_index("cpu")
    with pytest.raises(ValueError, match="not -2"):
        npu_index(-2)


def test_profiler_settings_are_checked():
    profiler._ExperimentalConfig(
        aic_metrics=profiler.AiCMetrics.Memory,
        profiler_level=profiler.ProfilerLevel.Level2,
        export_type=[profiler.ExportType.Text],
        gc_detect_threshold=1,
        l2_cache=False,
    )
    with pytest.raises(TypeError, match="nearest known name is 'l2_cache'"):
        profiler._ExperimentalConfig(l2cache=True)
    with pytest.raises(TypeError, match="takes a ProfilerLevel, one of Level_none, Level0"):
        profiler._ExperimentalConfig(profiler_level="Level1")
    with pytest.raises(TypeError, match="activities takes"):
        profiler.profile(activities=["npu"])
    with pytest.raises(TypeError, match="takes an _ExperimentalConfig, not dict"):
        profiler.profile(experimental_config={})


def test_the_order_mark_needs_no_stand_in(tmp_path):
    script = """
        import torch
        import uncopy.operators

        uncopy.operators.wait(torch.ones(2), torch.ones(3))
        schema = str(torch.ops.uncopy.wait.default._schema)
        assert schema == "uncopy::wait(Tensor self, Tensor dependency) -> ()", schema
        assert not hasattr(torch, "npu")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(PACKAGES)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
