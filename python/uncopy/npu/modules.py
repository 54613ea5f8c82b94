"""The modules that an Ascend script imports: torch_npu, torch.npu, torchair and what is inside
them.

Each is a module object filled from one module of this package, or from functions here. A name that
is missing raises an AttributeError that says so, never a silent stand-in.
"""

import importlib.machinery
import logging
import sys
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from uncopy.npu import compiler, profiler, runtime, scope
from uncopy.npu.config import CompilerConfig
from uncopy.npu.notes import record

__all__ = ["build_torch_npu", "build_torchair", "register"]

_VERSION = "0.0.0+uncopy"


def _build(name: str, doc: str, contents: ModuleType | Mapping[str, Any]) -> ModuleType:
    """A module object with the contents' public names."""
    if isinstance(contents, ModuleType):
        contents = {key: getattr(contents, key) for key in contents.__all__}
    module = ModuleType(name, doc)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, origin="uncopy.npu")
    module.__path__ = []
    module.__all__ = [key for key in contents if not key.startswith("_")]
    vars(module).update(contents)

    def absent(key: str) -> Any:
        raise AttributeError(
            f"{name}.{key} does not exist in uncopy.npu, which stands in for {name} without an NPU"
        )

    module.__getattr__ = absent
    return module


def register(module: ModuleType, name: str | None = None) -> None:
    """Makes a module and those built inside it importable, by their names or below another name."""
    name = name or module.__name__
    sys.modules[name] = module
    for key, inner in vars(module).items():
        if isinstance(inner, ModuleType):
            register(inner, f"{name}.{key}")


# torch_npu


def _npu_format_cast(self: torch.Tensor, acl_format: int, *args: Any) -> torch.Tensor:
    """The tensor itself: there are no private layouts here."""
    record("npu_format_cast: there are no private layouts here")
    return self


def _get_npu_format(self: torch.Tensor) -> int:
    """2, the number of the plain layout."""
    return 2


def _npu_prefetch(
    weight: torch.Tensor, depend: torch.Tensor | None, max_size: int = 0, offset: int = 0
) -> None:
    """Accepted without effect: the CPU's caches prefetch by themselves."""
    record("npu_prefetch: the CPU's caches prefetch by themselves")


def _build_torch_dot_npu() -> ModuleType:
    amp = {
        "autocast": lambda enabled=True, dtype=torch.float16, cache_enabled=True: torch.autocast(
            "cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled
        ),
        "GradScaler": lambda *args, **kwargs: torch.amp.GradScaler("cpu", *args, **kwargs),
    }
    graph_scope = {"limit_core_num": scope.limit_core_num}
    graph = {
        "compile_fx": compiler.compile_fx,
        "register_replacement": _register_replacement,
        "scope": _build("torch.npu.npugraph_ex.scope", "With-blocks.", graph_scope),
    }
    contents = {key: getattr(runtime, key) for key in runtime.__all__}
    contents["amp"] = _build("torch.npu.amp", "Mixed precision.", amp)
    contents["npugraph_ex"] = _build("torch.npu.npugraph_ex", "Compiling one FX graph.", graph)
    contents["config"] = SimpleNamespace(allow_internal_format=False)
    contents["matmul"] = SimpleNamespace(allow_hf32=False)
    contents["conv"] = SimpleNamespace(allow_hf32=False)
    return _build("torch.npu", runtime.__doc__ or "", contents)


def build_torch_npu() -> ModuleType:
    """torch_npu, with torch.npu as its `npu`."""
    contents = {
        "__version__": _VERSION,
        "npu": _build_torch_dot_npu(),
        "profiler": _build("torch_npu.profiler", profiler.__doc__ or "", profiler),
        "npu_format_cast": _npu_format_cast,
        "npu_format_cast_": _npu_format_cast,
        "get_npu_format": _get_npu_format,
        "npu_prefetch": _npu_prefetch,
    }
    return _build("torch_npu", "Ascend's adapter for PyTorch, on the CPU.", contents)


# torchair


def _patch_for_hcom() -> None:
    """Does nothing: collectives are traced as they are."""


def _use_internal_format_weight(model: torch.nn.Module) -> None:
    """Leaves the weights in their plain layout."""
    record("use_internal_format_weight: there are no private layouts here")


def _register_replacement(*args: Any, **kwargs: Any) -> None:
    """Accepts a fusion pattern; no FX pass runs."""
    record("register_replacement: Uncopy plans the graph as captured and runs no FX pass")


def _register_converter(operator: Any) -> Callable[[Any], Any]:
    """Accepts a lowering of an operator to a GE graph and returns it as it is."""
    record("register_fx_node_ge_converter: no GE graph is built here")
    return lambda converter: converter


def _dynamo_export(*args: Any, **kwargs: Any) -> None:
    """Raises NotImplementedError."""
    raise NotImplementedError("dynamo_export: Uncopy exports no offline graph for an NPU")


def _cache_compile(
    func: Callable[..., Any],
    *,
    config: CompilerConfig | None = None,
    dynamic: bool = True,
    custom_decompositions: Mapping[Any, Any] | None = None,
    **places: Any,
) -> Callable[..., Any]:
    """Compiles the function like torch.compile(fullgraph=True); nothing is kept on disk."""
    record("inference.cache_compile: a plan takes less time to make than to load, none is kept")
    backend = compiler.get_npu_backend(
        compiler_config=config, custom_decompositions=custom_decompositions
    )
    return torch.compile(func, backend=backend, dynamic=dynamic, fullgraph=True)


def _set_dim_gears(tensor: torch.Tensor, gears: Mapping[int, list[int]]) -> None:
    """Accepts the sizes that a dimension takes; sizes are read on each call anyway."""
    record("inference.set_dim_gears: sizes are read on each call, so there are no gears")


def build_torchair() -> ModuleType:
    """Torchair, with its scope, configs and inference modules."""
    config_module = _build(
        "torchair.configs.compiler_config", "Options.", {"CompilerConfig": CompilerConfig}
    )
    inference = {"cache_compile": _cache_compile, "set_dim_gears": _set_dim_gears}
    contents = {
        "__version__": _VERSION,
        "CompilerConfig": CompilerConfig,
        "configs": _build("torchair.configs", "Options.", {"compiler_config": config_module}),
        "dynamo_export": _dynamo_export,
        "get_compiler": compiler.get_compiler,
        "get_npu_backend": compiler.get_npu_backend,
        "inference": _build("torchair.inference", "Inference helpers.", inference),
        "logger": logging.getLogger("torchair"),
        "patch_for_hcom": _patch_for_hcom,
        "register_fx_node_ge_converter": _register_converter,
        "register_replacement": _register_replacement,
        "scope": _build("torchair.scope", scope.__doc__ or "", scope),
        "use_internal_format_weight": _use_internal_format_weight,
    }
    return _build("torchair", "Ascend's graph compiler for PyTorch, as Uncopy.", contents)
