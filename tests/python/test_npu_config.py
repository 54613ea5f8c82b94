"""The configuration of an Ascend script: names, types, what each option becomes, and the notes."""

import copy
import importlib
import logging
import pickle

import pytest
import torch

import uncopy.npu
from uncopy.npu import CompilerConfig, compiler, get_npu_backend, notes, scope
from uncopy.npu.config import check_graph_options, translate
from uncopy.npu.options import COMPILER_OPTIONS, GRAPH_OPTIONS, Option
from uncopy.options import OPTIONS as UNCOPY_OPTIONS

# What TorchAir and npugraph_ex document, by group.
COMPILER_NAMES = """
mode post_grad_custom_pre_pass post_grad_custom_post_pass
debug: graph_dump.type graph_dump.path data_dump.type data_dump.filter data_dump.path
  fx_summary.type fx_summary.skip_compile run_eagerly deadlock_check
debug.aclgraph: disable_reinplace_inplaceable_ops_pass disable_reinplace_input_mutated_ops_pass
  disable_mempool_reuse_in_same_fx enable_output_clone static_capture_size_limit clone_input
  remove_cat_ops
export: export_mode export_path_dir export_name weight_name inputs_name
export.experimental: auto_atc_config_generated enable_record_nn_module_stack enable_lite_export
dump_config: enable_dump dump_path dump_mode quant_dumpable dump_step dump_layer dump_data
  dump_config_path data_dump_stage
fusion_config: fusion_switch_file
experimental_config: cc_parallel_enable keep_inference_input_mutations memory_efficiency
  frozen_parameter static_model_ops_lower_limit jit_compile npu_fx_pass
  aot_config_enable_joint_graph aot_config_output_loss_index topology_sorting_strategy
  enable_ref_data enable_view_optimize remove_noop_ops tiling_schedule_optimize
  pattern_fusion_pass
experimental_config.aclgraph: _aclnn_static_shape_kernel _aclnn_static_shape_kernel_build_dir
  _aclnn_static_shape_kernel_sym_value_range _aclnn_static_shape_kernel_sym_index
  _super_kernel_optimize _super_kernel_optimize_options _super_kernel_debug_options
inference_config: dynamic_gears_merge_policy
ge_config: enable_single_stream oo_level oo_constant_folding oo_dead_code_elimination
  export_compile_stat aicore_num optimization_switch
aoe_config: aoe_mode work_path aoe_config_file
aclgraph_config: use_custom_pool
"""
GRAPH_NAMES = """
force_eager force_recapture use_graph_pool reuse_graph_pool_in_same_fx clone_input clone_output
capture_limit capture_error_mode static_kernel_compile disable_static_kernel_compile_cache
frozen_parameter remove_noop_ops remove_cat_ops inplace_pass input_inplace_pass
pattern_fusion_pass post_grad_custom_pre_pass post_grad_custom_post_pass dump_tensor_data
data_dump_stage data_dump_dir deadlock_check super_kernel_optimize super_kernel_optimize_options
super_kernel_debug_options _vllm_aclnn_static_kernel_sym_index _vllm_aclnn_static_kernel_sym_range
"""

COMPILER_ROWS = [pytest.param(row, id=row.name) for row in COMPILER_OPTIONS.values()]
TYPED_ROWS = [row for row in COMPILER_ROWS if object not in row.values[0].kind.types]
GRAPH_ROWS = [pytest.param(row, id=row.name) for row in GRAPH_OPTIONS.values()]


class Nothing:
    """Of no type that an option takes."""


def assign(config: CompilerConfig, name: str, value: object) -> None:
    """Assigns by dotted name, as a script does."""
    group, _, last = name.rpartition(".")
    target = config
    for part in group.split(".") if group else []:
        target = getattr(target, part)
    setattr(target, last, value)


def read(config: CompilerConfig, name: str) -> object:
    """Reads by dotted name."""
    value = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.fixture
def made(monkeypatch):
    """Every (options, notes) that a backend was made with; graphs run as they are."""
    calls = []

    def make_backend(options, notes=()):
        calls.append((options, list(notes)))
        return lambda graph, example_inputs: graph.forward

    # The package's attribute of that name is the function.
    module = importlib.import_module("uncopy.backend")
    monkeypatch.setattr(module, "make_backend", make_backend)
    return calls


def test_every_documented_name_has_a_row():
    names, prefix = set(), ""
    for word in COMPILER_NAMES.split():
        if word.endswith(":"):
            prefix = word[:-1] + "."
        else:
            names.add(prefix + word)
    assert set(COMPILER_OPTIONS) == names
    assert set(GRAPH_OPTIONS) == set(GRAPH_NAMES.split())


@pytest.mark.parametrize("row", COMPILER_ROWS)
def test_an_option_accepts_its_default_and_gives_it_back(row: Option):
    config = CompilerConfig()
    assert read(config, row.name) == row.default
    assign(config, row.name, row.default)
    assert read(config, row.name) == row.default
    assert translate(config)[1] == []


@pytest.mark.parametrize("row", TYPED_ROWS)
def test_an_option_rejects_a_wrong_type_and_says_what_it_takes(row: Option):
    config = CompilerConfig()
    with pytest.raises(TypeError) as caught:
        assign(config, row.name, Nothing())
    assert f"CompilerConfig.{row.name} takes {row.kind.words}" in str(caught.value)
    assert read(config, row.name) == row.default


@pytest.mark.parametrize("row", GRAPH_ROWS)
def test_a_flat_option_accepts_its_default_and_rejects_a_wrong_type(row: Option):
    check_graph_options({row.name: row.default})
    assert translate({row.name: row.default}) == ({}, [])
    if object not in row.kind.types:
        with pytest.raises(TypeError, match=row.name):
            check_graph_options({row.name: Nothing()})


@pytest.mark.parametrize("row", COMPILER_ROWS + GRAPH_ROWS)
def test_an_option_has_an_effect_that_exists_or_a_reason(row: Option):
    assert row.doc
    assert row.sets or row.reason
    assert not row.sets or row.sets in UNCOPY_OPTIONS
    for value in row.values.values():
        UNCOPY_OPTIONS[row.sets].check(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "fast"),
        ("debug.graph_dump.type", "svg"),
        ("experimental_config.topology_sorting_strategy", "stablerdfs"),
        ("experimental_config.static_model_ops_lower_limit", -2),
        ("debug.aclgraph.static_capture_size_limit", 0),
        ("dump_config.dump_step", "first"),
        ("ge_config.optimization_switch", "PassA"),
        ("ge_config.aicore_num", "many"),
        ("experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range", [1, "2"]),
    ],
)
def test_a_value_that_is_not_allowed_is_rejected_with_those_that_are(name, value):
    with pytest.raises(ValueError, match=r"takes .*, not "):
        assign(CompilerConfig(), name, value)


@pytest.mark.parametrize("value", [1, 0, "1", None])
def test_a_switch_takes_only_true_and_false(value):
    with pytest.raises(TypeError, match="takes True or False"):
        CompilerConfig().debug.run_eagerly = value


def test_an_integer_is_no_bool():
    with pytest.raises(TypeError, match="an integer from 1 up"):
        CompilerConfig().debug.aclgraph.static_capture_size_limit = True


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("experimental_config.topology_sorting_stratgy", "topology_sorting_strategy"),
        ("topology_sorting_strategy", "experimental_config.topology_sorting_strategy"),
        ("debug.graph_dump.typ", "debug.graph_dump.type"),
        ("mod", "mode"),
        ("ge_config.frozen_parameter", "experimental_config.frozen_parameter"),
        ("experimental_config.view_optimize", "enable_view_optimize"),
    ],
)
def test_an_unknown_name_raises_with_the_nearest_known_one(name, nearest):
    config = CompilerConfig()
    with pytest.raises(AttributeError, match=nearest) as caught:
        assign(config, name, "x")
    assert name in str(caught.value)
    with pytest.raises(AttributeError, match=nearest):
        read(config, name)


def test_an_unknown_group_raises_with_the_nearest_known_one():
    with pytest.raises(AttributeError, match="'experimental_config'"):
        CompilerConfig().experimental_conf  # noqa: B018


def test_a_name_like_no_other_raises_without_a_guess():
    with pytest.raises(AttributeError) as caught:
        CompilerConfig().zzzzzz = 1
    assert "nearest" not in str(caught.value)


def test_a_group_is_not_assigned():
    with pytest.raises(TypeError, match=r"is a group; assign to one of: type, path"):
        CompilerConfig().debug.graph_dump = "py"


def test_hasattr_tells_the_known_names():
    config = CompilerConfig()
    assert hasattr(config, "debug")
    assert hasattr(config.debug.graph_dump, "type")
    assert not hasattr(config, "nothing_like_it")
    assert {"mode", "debug", "experimental_config"} <= set(dir(config))


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]
)
def test_a_configuration_can_be_duplicated(duplicate):
    config = CompilerConfig()
    config.mode = "reduce-overhead"
    other = duplicate(config)
    assert other == config
    other.debug.graph_dump.type = "py"
    assert other != config
    assert config.debug.graph_dump.type is None
    assert repr(config) == "CompilerConfig(mode='reduce-overhead')"


def test_an_equal_configuration_may_have_assigned_defaults():
    config = CompilerConfig()
    config.mode = "max-autotune"
    assert config == CompilerConfig()


@pytest.mark.parametrize("strategy", ["BFS", "DFS", "RDFS", "StableRDFS"])
def test_topology_sorting_strategy_becomes_the_order(strategy):
    config = CompilerConfig()
    config.experimental_config.topology_sorting_strategy = strategy
    assert translate(config) == ({"order": strategy}, [])


def test_an_order_that_was_not_assigned_stays_the_programs():
    assert translate(CompilerConfig()) == ({}, [])


@pytest.mark.parametrize("kind", ["py", "txt"])
def test_graph_dump_becomes_the_dump(kind, tmp_path):
    config = CompilerConfig()
    config.debug.graph_dump.path = tmp_path
    assert translate(config) == ({}, [])
    config.debug.graph_dump.type = kind
    assert translate(config) == ({"dump": kind, "dump_path": tmp_path}, [])


def test_a_dump_of_a_ge_graph_is_noted():
    config = CompilerConfig()
    config.debug.graph_dump.type = "pbtxt"
    options, notes = translate(config)
    assert options == {}
    assert notes == [
        "debug.graph_dump.type='pbtxt': there is no GE graph to write; 'py' and 'txt' are written "
        "here"
    ]


def test_run_eagerly_and_force_eager_run_on_pytorchs_kernels():
    config = CompilerConfig()
    config.debug.run_eagerly = True
    assert translate(config) == ({"kernels": "extern"}, [])
    assert translate({"force_eager": True}) == ({"kernels": "extern"}, [])


@pytest.mark.parametrize("mode", ["reduce-overhead", "npugraph_ex"])
def test_a_mode_without_effect_says_so(mode):
    config = CompilerConfig()
    config.mode = mode
    assert translate(config) == ({}, [f"mode='{mode}': adds nothing to the normal plan today"])


def test_notes_name_value_and_reason():
    config = CompilerConfig()
    config.experimental_config.frozen_parameter = True
    config.post_grad_custom_pre_pass = translate
    _, notes = translate(config)
    assert notes[0].startswith("experimental_config.frozen_parameter=True: ")
    assert notes[1].startswith("post_grad_custom_pre_pass=translate: ")


def test_the_backend_gets_options_and_notes(made):
    config = CompilerConfig()
    config.mode = "reduce-overhead"
    config.experimental_config.topology_sorting_strategy = "RDFS"
    backend = get_npu_backend(
        compiler_config=config, custom_decompositions={torch.ops.aten.addmm.default: max}
    )
    config.experimental_config.topology_sorting_strategy = "BFS"  # too late for this backend
    result = torch.compile(lambda x: x + 1, backend=backend, fullgraph=True)(torch.ones(2))
    assert result.tolist() == [2, 2]
    assert made == [
        (
            {"order": "RDFS"},
            [
                "mode='reduce-overhead': adds nothing to the normal plan today",
                "custom_decompositions=aten.addmm.default: Uncopy plans operations as captured and "
                "decomposes none",
            ],
        )
    ]


def test_a_plan_explains_what_has_no_effect():
    config = CompilerConfig()
    config.ge_config.enable_single_stream = True
    backend = get_npu_backend(compiler_config=config)
    compiled = torch.compile(lambda x: x + 1, backend=backend, fullgraph=True)
    compiled(torch.ones(2))
    (plan,) = uncopy.plans()
    assert "ge_config.enable_single_stream=True: a plan runs its operations" in plan.explain()


def test_scopes_are_noted_for_the_graph_that_has_them(made):
    def fn(x):
        with scope.npu_stream_switch("side", 1), scope.limit_core_num(4, 8):
            x = x + 1
        with scope.super_kernel("one", "stream-fusion=1"), scope.op_never_timeout(True):
            return x * 2

    notes.take()
    torch.compile(fn, backend=get_npu_backend(), fullgraph=True)(torch.ones(2))
    torch.compile(lambda x: x - 1, backend=get_npu_backend(), fullgraph=True)(torch.ones(2))
    names = [note.partition(":")[0] for note in made[0][1]]
    assert names == [
        "scope.npu_stream_switch",
        "scope.limit_core_num",
        "scope.super_kernel",
        "scope.op_never_timeout",
    ]
    assert made[1] == ({}, [])


def test_a_scope_checks_its_arguments():
    with pytest.raises(TypeError, match="stream_tag must be a string, not 3"):
        scope.npu_stream_switch(3)
    with pytest.raises(TypeError, match="op_aicore_num must be an integer"):
        scope.limit_core_num("4", 8)


def test_a_note_is_logged_once(caplog, made):
    config = CompilerConfig()
    config.aoe_config.aoe_mode = "2"
    with caplog.at_level(logging.WARNING, logger="uncopy.npu"):
        for _ in range(2):
            get_npu_backend(compiler_config=config)
    assert [record.message for record in caplog.records] == [
        "no effect here: aoe_config.aoe_mode='2': no operator is tuned offline here"
    ]


def test_another_class_of_configuration_is_refused():
    with pytest.raises(TypeError, match=r"must be an uncopy\.npu\.CompilerConfig, not .*Nothing"):
        get_npu_backend(compiler_config=Nothing())
    with pytest.raises(TypeError, match="must be a dict of operators"):
        get_npu_backend(custom_decompositions=[])


def test_get_compiler_serves_a_backend_of_the_scripts_own():
    from torch._functorch.aot_autograd import aot_module_simplified

    fx_compiler = uncopy.npu.get_compiler(CompilerConfig())

    def backend(graph, example_inputs):
        return aot_module_simplified(graph, example_inputs, fw_compiler=fx_compiler)

    result = torch.compile(lambda x: x * 3, backend=backend, fullgraph=True)(torch.ones(2))
    assert result.tolist() == [3, 3]


def test_flat_options_are_translated_and_noted(made):
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    compiler.compile_fx(graph, [torch.ones(2)], {"force_eager": True, "capture_limit": 8})
    options, notes = made[0]
    assert options == {"kernels": "extern"}
    assert notes[0] == "backend=npugraph_ex: adds nothing to the normal plan today"
    assert notes[1].startswith("capture_limit=8: nothing is captured and replayed here")


def test_an_unknown_flat_option_names_the_nearest():
    with pytest.raises(ValueError, match="nearest known name is 'clone_input'"):
        check_graph_options({"clone_inputs": True})
    with pytest.raises(TypeError, match="must be a dict"):
        check_graph_options([])


def test_importing_the_package_patches_nothing():
    assert not hasattr(torch, "npu")
    assert not hasattr(torch.Tensor, "npu")
