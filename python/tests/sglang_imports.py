"""Imports sglang's modules with the oracle in the place of sgl_kernel and flashinfer, and stand-ins for what else is not installed. Run with
sglang on the path: the arguments name modules (with dots, or a folder with /*). Prints what each came to, and the functions of the oracle that
it took, as JSON."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import traceback
import types

import torch


class Kind(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Anything(metaclass=Kind):
    """A class, a function, a decorator, a base and a value, as an import may want it."""

    def __init__(self, *args, **kwargs):
        pass

    def __init_subclass__(cls, **kwargs):
        pass

    def __class_getitem__(cls, item):
        return cls

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else Anything()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __iter__(self):
        return iter(())

    def __or__(self, other):
        return self

    __ror__ = __or__


class StandIn(types.ModuleType):
    __path__ = []
    __version__ = "99.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = Kind(name, (Anything,), {})
        setattr(self, name, made)
        return made


def importer():
    """The module whose import statement is being carried out."""
    frame = sys._getframe(2)
    while "importlib" in frame.f_code.co_filename or frame.f_globals["__name__"] == __name__:
        frame = frame.f_back
    return frame.f_globals["__name__"]


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last to be asked: what is not installed is a stand-in. sglang's own modules and the oracle's are not."""

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in ("sglang", "sgl_kernel", "flashinfer", "dodona") or top in sys.stdlib_module_names:
            return None
        if not importer().startswith("sglang") or top != name and not isinstance(sys.modules.get(top), StandIn):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        standing_in.append(module.__name__)


def pretend_a_gpu():
    """sglang takes its CUDA path where torch sees a device."""
    torch.version.cuda = torch.version.cuda or "12.9"
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda device=None: (10, 0)
    torch.cuda.get_device_name = lambda device=None: "none"
    torch.cuda.get_device_properties = lambda device=None: types.SimpleNamespace(
        major=10, minor=0, multi_processor_count=148, name="none", total_memory=1 << 37
    )
    made = torch.tensor
    torch.tensor = lambda *args, device=None, **kwargs: made(*args, **kwargs)


def modules_of(pattern, root):
    if not pattern.endswith("/*"):
        return [pattern]
    folder = root / pattern[:-2]
    files = sorted(folder.rglob("*.py"))
    return [".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for file in files]


standing_in = []
# Installed, perhaps, in versions that this sglang was not written for; and what only they make importable.
ALWAYS = ("transformers", "huggingface_hub", "pydantic", "sglang.srt.utils.hf_transformers_utils")


def result_of(module):
    try:
        importlib.import_module(module)
    except BaseException as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"[:300]
    return "imported"


def main():
    from dodona import compat

    sys.path[:] = [folder for folder in sys.path if folder != str(pathlib.Path(__file__).parent)]  # triton_kernels is a package of theirs, too
    pretend_a_gpu()
    compat.install()
    sys.modules.update({name: StandIn(name) for name in ALWAYS})
    sys.meta_path.append(Finder())
    root = pathlib.Path(importlib.util.find_spec("sglang").origin).parent.parent
    results = {module: result_of(module) for pattern in sys.argv[1:] for module in modules_of(pattern, root)}
    offered = {id(getattr(importlib.import_module(package), name)) for package in compat.PACKAGES for name in compat.functions(package)}
    taken = {name: sorted(key for key, value in vars(sys.modules[name]).items() if id(value) in offered) for name in results if name in sys.modules}
    print(json.dumps({"results": results, "taken": {name: keys for name, keys in taken.items() if keys}, "standing_in": sorted(standing_in)}))


if __name__ == "__main__":
    main()
