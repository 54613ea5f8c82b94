"""The options of an Ascend compiler configuration: one row each, with what it does here or why it
does nothing.

`COMPILER_OPTIONS` holds those of `torchair.CompilerConfig` by dotted name, `GRAPH_OPTIONS` the flat
ones of `torch.compile(backend="npugraph_ex", options=...)`. Checking, defaults, messages and
translation follow from the rows; config.py reads them.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["COMPILER_OPTIONS", "GRAPH_OPTIONS", "Kind", "Option"]


@dataclass(frozen=True)
class Kind:
    """The values that an option takes: their types, a further test, and the words for a message."""

    words: str
    types: tuple[type, ...]
    test: Callable[[Any], bool] = lambda value: True
    none: bool = False

    def check(self, name: str, value: object) -> None:
        """Raises TypeError for a value of another type, ValueError for one outside the allowed
        values.
        """
        if value is None and self.none:
            return
        words = f"{self.words} or None" if self.none else self.words
        # A bool is an int to Python, but never a count here.
        is_bool_as_int = isinstance(value, bool) and bool not in self.types
        if is_bool_as_int or not isinstance(value, self.types):
            kind = type(value).__name__
            raise TypeError(f"{name} takes {words}, not {value!r} ({kind})")
        if not self.test(value):
            raise ValueError(f"{name} takes {words}, not {value!r}")


def _choice(*values: str, none: bool = False) -> Kind:
    words = " or ".join(repr(value) for value in values)
    return Kind(words, (str,), lambda value: value in values, none)


def _integer(low: int, high: int = 2**63 - 1, *, none: bool = False) -> Kind:
    words = f"an integer from {low} up" if high == 2**63 - 1 else f"an integer {low} to {high}"
    return Kind(words, (int,), lambda value: low <= value <= high, none)


def _pattern(words: str, pattern: str, *, none: bool = False) -> Kind:
    return Kind(words, (str,), lambda value: re.fullmatch(pattern, value) is not None, none)


def _all_of(kind: type) -> Callable[[Any], bool]:
    return lambda values: all(isinstance(value, kind) for value in values)


_SWITCH = Kind("True or False", (bool,))
_SWITCH_OR_NONE = Kind("True or False", (bool,), none=True)
_TEXT = Kind("a string", (str,), none=True)
_PATH = Kind("a path (string or os.PathLike)", (str, os.PathLike))
_PATH_OR_NONE = Kind(_PATH.words, _PATH.types, none=True)
_FUNCTION = Kind("a function", (Callable,), none=True)
_TABLE = Kind("a dict", (dict,), none=True)
_OPTION_TEXT = Kind("a dict or a string", (dict, str), none=True)
_INTEGERS = Kind("a list of integers", (list, tuple), _all_of(int), none=True)
_NAMES = Kind("a list of strings", (list, tuple), _all_of(str), none=True)
_HANDLE = Kind("any object", (object,), none=True)


@dataclass(frozen=True)
class Option:
    """One option. Exactly what it does here: `sets` names the Uncopy option it becomes; else
    `reason` says why nothing.

    `values` maps a value here to one there, empty: as it is. A row with both has values that are
    mapped and others that have no effect for that reason.
    """

    name: str
    kind: Kind
    default: object
    doc: str
    reason: str = ""
    sets: str = ""
    values: Mapping[object, object] = field(default_factory=dict)


_NO_GE = "no GE graph is built here"
_NO_DEVICE = "there is no NPU here, operations run on the CPU"
_NO_CAPTURE = "nothing is captured and replayed here, a plan runs on the caller's own tensors"
_IN_PLACE = "Uncopy never makes a graph functional, so there is nothing to turn back into in-place"
_NO_EXPORT = "Uncopy exports no offline graph"
_NO_DUMP = "operations' tensors are not dumped here; verify=n compares each with eager"
_OWN_PASSES = "Uncopy's passes have switches of their own in its options"
_NO_FX = "Uncopy plans the graph as captured and runs no FX pass"
_ONE_STREAM = "a plan runs its operations in one order, on one stream"
_STATIC = "no kernel is compiled here, at any shape"
_FROZEN = "addresses are checked on each call at no cost that is worth a promise"
_SUPER_KERNEL = "kernels are not fused into one launch, there is nothing to launch on a CPU"
_TUNING = "no operator is tuned offline here"

_STRATEGIES = ("BFS", "DFS", "RDFS", "StableRDFS")

_COMPILER_ROWS = (
    Option(
        "mode",
        _choice("max-autotune", "reduce-overhead", "npugraph_ex"),
        "max-autotune",
        "how graphs are compiled; max-autotune is the normal plan",
        reason="adds nothing to the normal plan today",
    ),
    Option(
        "debug.graph_dump.type",
        _choice("txt", "pbtxt", "py", none=True),
        None,
        "write each compiled graph: py as Python that runs, txt as text",
        reason="there is no GE graph to write; 'py' and 'txt' are written here",
        sets="dump",
        values={"py": "py", "txt": "txt"},
    ),
    Option(
        "debug.graph_dump.path", _PATH_OR_NONE, None, "folder of the graph dump", sets="dump_path"
    ),
    Option(
        "debug.data_dump.type",
        _choice("npy", none=True),
        None,
        "run eagerly and save each node's tensors",
        reason=_NO_DUMP,
    ),
    Option("debug.data_dump.filter", _FUNCTION, None, "which nodes are saved", reason=_NO_DUMP),
    Option("debug.data_dump.path", _PATH_OR_NONE, None, "folder of the data", reason=_NO_DUMP),
    Option(
        "debug.fx_summary.type",
        _choice("csv", none=True),
        None,
        "report which operations have a converter",
        reason="operations need no converter here; explain lists those that the host runs",
    ),
    Option(
        "debug.fx_summary.skip_compile",
        _SWITCH,
        True,
        "only report, do not compile",
        reason="no such report is made here",
    ),
    Option(
        "debug.run_eagerly",
        _SWITCH,
        False,
        "run operation by operation: here on PyTorch's own kernels",
        sets="kernels",
        values={True: "extern"},
    ),
    Option(
        "debug.deadlock_check",
        _SWITCH,
        False,
        "can parallel streams starve each other of cores",
        reason=_ONE_STREAM,
    ),
    Option(
        "debug.aclgraph.disable_reinplace_inplaceable_ops_pass",
        _SWITCH,
        False,
        "no in-place form for intermediates",
        reason=_IN_PLACE,
    ),
    Option(
        "debug.aclgraph.disable_reinplace_input_mutated_ops_pass",
        _SWITCH,
        False,
        "no in-place form for a result copied into an input",
        reason=_IN_PLACE,
    ),
    Option(
        "debug.aclgraph.disable_mempool_reuse_in_same_fx",
        _SWITCH,
        False,
        "captures of one graph share no memory pool",
        reason=_NO_CAPTURE,
    ),
    Option(
        "debug.aclgraph.enable_output_clone",
        _SWITCH,
        False,
        "clone outputs before they are returned",
        reason="no later call overwrites an output, so none needs to be cloned",
    ),
    Option(
        "debug.aclgraph.static_capture_size_limit",
        _integer(1),
        64,
        "captured graphs kept for one FX graph",
        reason=_NO_CAPTURE,
    ),
    Option(
        "debug.aclgraph.clone_input",
        _SWITCH,
        True,
        "copy inputs into memory of the graph",
        reason="a plan reads the caller's own tensors, no input is ever cloned",
    ),
    Option(
        "debug.aclgraph.remove_cat_ops",
        _SWITCH,
        True,
        "write the parts of a cat in place",
        reason=_OWN_PASSES,
    ),
    Option("export.export_mode", _SWITCH, False, "export instead of running", reason=_NO_EXPORT),
    Option("export.export_path_dir", _PATH, "./", "folder of the export", reason=_NO_EXPORT),
    Option("export.export_name", _TEXT, None, "name of the export", reason=_NO_EXPORT),
    Option("export.weight_name", _HANDLE, None, "names of the weights", reason=_NO_EXPORT),
    Option("export.inputs_name", _HANDLE, None, "names of the inputs", reason=_NO_EXPORT),
    Option(
        "export.experimental.auto_atc_config_generated",
        _SWITCH,
        False,
        "write a template of the sharding",
        reason=_NO_EXPORT,
    ),
    Option(
        "export.experimental.enable_record_nn_module_stack",
        _SWITCH,
        False,
        "keep the module that an operation came from",
        reason=_NO_EXPORT,
    ),
    Option(
        "export.experimental.enable_lite_export",
        _SWITCH,
        False,
        "export for light devices",
        reason=_NO_EXPORT,
    ),
    Option("dump_config.enable_dump", _SWITCH, False, "dump on the device", reason=_NO_DUMP),
    Option("dump_config.dump_path", _PATH, "./", "folder of the dump", reason=_NO_DUMP),
    Option(
        "dump_config.dump_mode",
        _choice("input", "output", "all"),
        "all",
        "which side of an operation",
        reason=_NO_DUMP,
    ),
    Option(
        "dump_config.quant_dumpable", _SWITCH, False, "tensors before quantizing", reason=_NO_DUMP
    ),
    Option(
        "dump_config.dump_step",
        _pattern("steps such as '0|2-5'", r"((\d+(-\d+)?)(\|\d+(-\d+)?)*)?"),
        "",
        "which steps",
        reason=_NO_DUMP,
    ),
    Option(
        "dump_config.dump_layer",
        Kind("names of layers, separated by spaces", (str,)),
        "",
        "which layers",
        reason=_NO_DUMP,
    ),
    Option(
        "dump_config.dump_data",
        _choice("tensor", "stats"),
        "tensor",
        "whole tensors or statistics",
        reason=_NO_DUMP,
    ),
    Option(
        "dump_config.dump_config_path",
        _PATH_OR_NONE,
        None,
        "JSON file that describes the dump",
        reason=_NO_DUMP,
    ),
    Option(
        "dump_config.data_dump_stage",
        _choice("original", "optimized"),
        "optimized",
        "which form of the graph is dumped",
        reason=_NO_DUMP,
    ),
    Option(
        "fusion_config.fusion_switch_file",
        _PATH_OR_NONE,
        None,
        "JSON file that switches fusion passes",
        reason=_OWN_PASSES,
    ),
    Option(
        "experimental_config.cc_parallel_enable",
        _SWITCH,
        False,
        "overlap collectives and computation",
        reason="overlap= of Uncopy's own options decides this",
    ),
    Option(
        "experimental_config.keep_inference_input_mutations",
        _SWITCH,
        True,
        "writes to inputs stay in the graph",
        reason="writes to inputs always stay where the program has them",
    ),
    Option(
        "experimental_config.memory_efficiency",
        _SWITCH,
        False,
        "a static graph takes its memory's address per run",
        reason=_NO_GE,
    ),
    Option(
        "experimental_config.frozen_parameter",
        _SWITCH,
        False,
        "parameters never move",
        reason=_FROZEN,
    ),
    Option(
        "experimental_config.static_model_ops_lower_limit",
        _integer(-1, none=True),
        None,
        "smallest static part split out of a dynamic graph",
        reason=_NO_GE,
    ),
    Option(
        "experimental_config.jit_compile",
        _choice("auto"),
        "auto",
        "use kernels compiled beforehand where possible",
        reason=_STATIC,
    ),
    Option("experimental_config.npu_fx_pass", _SWITCH, False, "more FX passes", reason=_NO_FX),
    Option(
        "experimental_config.aot_config_enable_joint_graph",
        _SWITCH,
        False,
        "compile forward and backward as one graph",
        reason="Uncopy traces forward and backward its own way",
    ),
    Option(
        "experimental_config.aot_config_output_loss_index",
        _integer(0),
        0,
        "which output is the loss",
        reason="Uncopy traces forward and backward its own way",
    ),
    Option(
        "experimental_config.topology_sorting_strategy",
        _choice(*_STRATEGIES),
        "DFS",
        "the order that a plan's operations run in; the program's where nothing is assigned",
        sets="order",
    ),
    Option(
        "experimental_config.enable_ref_data",
        _SWITCH,
        False,
        "inputs that are written are references",
        reason="each input is the caller's own memory already",
    ),
    Option(
        "experimental_config.enable_view_optimize",
        _SWITCH,
        True,
        "merge chains of views",
        reason="a view is no operation here",
    ),
    Option(
        "experimental_config.remove_noop_ops",
        _SWITCH,
        True,
        "drop operations that do nothing",
        reason=_OWN_PASSES,
    ),
    Option(
        "experimental_config.tiling_schedule_optimize",
        _SWITCH,
        False,
        "work out tilings on the device",
        reason=_NO_DEVICE,
    ),
    Option(
        "experimental_config.pattern_fusion_pass",
        _SWITCH,
        True,
        "built-in fusions of FX patterns",
        reason=_NO_FX,
    ),
    Option(
        "experimental_config.aclgraph._aclnn_static_shape_kernel",
        _SWITCH,
        False,
        "compile kernels for the shapes met",
        reason=_STATIC,
    ),
    Option(
        "experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir",
        _PATH_OR_NONE,
        None,
        "folder of those kernels",
        reason=_STATIC,
    ),
    Option(
        "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range",
        _INTEGERS,
        None,
        "values of the symbol that get kernels",
        reason=_STATIC,
    ),
    Option(
        "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_index",
        _integer(0),
        0,
        "which symbol",
        reason=_STATIC,
    ),
    Option(
        "experimental_config.aclgraph._super_kernel_optimize",
        _SWITCH,
        False,
        "fuse captured kernels into one",
        reason=_SUPER_KERNEL,
    ),
    Option(
        "experimental_config.aclgraph._super_kernel_optimize_options",
        _OPTION_TEXT,
        None,
        "options of that fusion",
        reason=_SUPER_KERNEL,
    ),
    Option(
        "experimental_config.aclgraph._super_kernel_debug_options",
        _OPTION_TEXT,
        None,
        "debugging that fusion",
        reason=_SUPER_KERNEL,
    ),
    Option(
        "inference_config.dynamic_gears_merge_policy",
        _choice("zip", "product"),
        "zip",
        "how lists of gears combine",
        reason="sizes are read on each call, so there are no gears",
    ),
    Option(
        "ge_config.enable_single_stream",
        _SWITCH,
        False,
        "one stream",
        reason=_ONE_STREAM,
    ),
    Option(
        "ge_config.oo_level",
        _choice("O1", "O3"),
        "O3",
        "how much is optimized",
        reason=f"{_OWN_PASSES}; topology_sorting_strategy gives the order",
    ),
    Option(
        "ge_config.oo_constant_folding",
        _SWITCH_OR_NONE,
        None,
        "fold constants",
        reason=_OWN_PASSES,
    ),
    Option(
        "ge_config.oo_dead_code_elimination",
        _SWITCH_OR_NONE,
        None,
        "drop what is not used",
        reason=_OWN_PASSES,
    ),
    Option(
        "ge_config.export_compile_stat",
        _choice("0", "1", "2"),
        "2",
        "when fusion statistics are written",
        reason=_NO_GE,
    ),
    Option(
        "ge_config.aicore_num",
        _pattern("core counts such as '24|48'", r"\d*\|?\d*", none=True),
        None,
        "core budget of the graph",
        reason=f"{_NO_DEVICE}; threads= bounds those",
    ),
    Option(
        "ge_config.optimization_switch",
        _pattern(
            "passes such as 'PassA:on;PassB:off'",
            r"[^:;]+:(on|off)(;[^:;]+:(on|off))*;?",
            none=True,
        ),
        None,
        "switches of single passes",
        reason=_OWN_PASSES,
    ),
    Option("aoe_config.aoe_mode", _choice("2", none=True), None, "offline tuning", reason=_TUNING),
    Option("aoe_config.work_path", _PATH, "./", "folder of the tuning", reason=_TUNING),
    Option("aoe_config.aoe_config_file", _PATH_OR_NONE, None, "file of the tuning", reason=_TUNING),
    Option(
        "aclgraph_config.use_custom_pool",
        _HANDLE,
        None,
        "memory pool that graphs share",
        reason=_NO_CAPTURE,
    ),
    Option(
        "post_grad_custom_pre_pass",
        _FUNCTION,
        None,
        "FX pass before the built-in ones",
        reason=_NO_FX,
    ),
    Option(
        "post_grad_custom_post_pass",
        _FUNCTION,
        None,
        "FX pass after the built-in ones",
        reason=_NO_FX,
    ),
)

_GRAPH_ROWS = (
    Option(
        "force_eager",
        _SWITCH,
        False,
        "no capture: here operation by operation on PyTorch's own kernels",
        sets="kernels",
        values={True: "extern"},
    ),
    Option("force_recapture", _SWITCH, False, "capture again on demand", reason=_NO_CAPTURE),
    Option("use_graph_pool", _HANDLE, None, "pool that graphs share", reason=_NO_CAPTURE),
    Option(
        "reuse_graph_pool_in_same_fx",
        _SWITCH,
        True,
        "captures of one graph share a pool",
        reason=_NO_CAPTURE,
    ),
    Option(
        "clone_input",
        _SWITCH,
        True,
        "copy inputs into the pool",
        reason="a plan reads the caller's own tensors, no input is ever cloned",
    ),
    Option(
        "clone_output",
        _SWITCH,
        False,
        "clone outputs",
        reason="no later call overwrites an output, so none needs to be cloned",
    ),
    Option("capture_limit", _integer(1), 64, "captures before eager", reason=_NO_CAPTURE),
    Option(
        "capture_error_mode",
        _choice("global", "thread_local", "relaxed"),
        "global",
        "what a capture refuses",
        reason=_NO_CAPTURE,
    ),
    Option("static_kernel_compile", _SWITCH, False, "kernels for the shapes met", reason=_STATIC),
    Option(
        "disable_static_kernel_compile_cache", _SWITCH, False, "do not keep them", reason=_STATIC
    ),
    Option("frozen_parameter", _SWITCH, False, "parameters never move", reason=_FROZEN),
    Option("remove_noop_ops", _SWITCH, True, "drop operations that do nothing", reason=_OWN_PASSES),
    Option(
        "remove_cat_ops", _SWITCH, True, "write the parts of a cat in place", reason=_OWN_PASSES
    ),
    Option("inplace_pass", _SWITCH, True, "in-place form for intermediates", reason=_IN_PLACE),
    Option(
        "input_inplace_pass", _SWITCH, True, "in-place form for written inputs", reason=_IN_PLACE
    ),
    Option("pattern_fusion_pass", _SWITCH, True, "built-in fusions", reason=_NO_FX),
    Option("post_grad_custom_pre_pass", _FUNCTION, None, "first FX pass", reason=_NO_FX),
    Option("post_grad_custom_post_pass", _FUNCTION, None, "last FX pass", reason=_NO_FX),
    Option("dump_tensor_data", _SWITCH, False, "dump tensors", reason=_NO_DUMP),
    Option(
        "data_dump_stage",
        _choice("original", "optimized"),
        "optimized",
        "which form of the graph is dumped",
        reason=_NO_DUMP,
    ),
    Option("data_dump_dir", _PATH, "./", "folder of the dump", reason=_NO_DUMP),
    Option(
        "deadlock_check",
        _SWITCH,
        False,
        "can parallel streams starve each other of cores",
        reason=_ONE_STREAM,
    ),
    Option("super_kernel_optimize", _SWITCH, False, "fuse kernels", reason=_SUPER_KERNEL),
    Option("super_kernel_optimize_options", _TABLE, None, "how to fuse", reason=_SUPER_KERNEL),
    Option("super_kernel_debug_options", _TABLE, None, "debugging it", reason=_SUPER_KERNEL),
    Option("_vllm_aclnn_static_kernel_sym_index", _integer(0), 0, "which symbol", reason=_STATIC),
    Option("_vllm_aclnn_static_kernel_sym_range", _INTEGERS, None, "its values", reason=_STATIC),
)

COMPILER_OPTIONS: Mapping[str, Option] = {row.name: row for row in _COMPILER_ROWS}
GRAPH_OPTIONS: Mapping[str, Option] = {row.name: row for row in _GRAPH_ROWS}
