"""A package that is not there: any name and any submodule of it can be imported, any call of one fails.

SGLang imports names of packages that have no CPU build, ``sgl_kernel`` and ``torchvision``, and never calls them where
it runs in plain PyTorch. A copy of this file as such a package's ``__init__.py`` gets it that far, and no further.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType


class Absent(ModuleType):
    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self.__name__} is a stand-in and cannot be called")

    def __getattr__(self, name):
        # Names with underscores are questions of the import system and of copy and pickle: those need a true answer.
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class Finder:
    """Makes a module of any name below this package."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        inside = name.startswith(f"{__name__}.")
        return ModuleSpec(name, Finder, is_package=True) if inside else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec):
        return Absent(spec.name)

    @staticmethod
    def exec_module(module):
        pass


sys.meta_path.append(Finder)
sys.modules[__name__].__class__ = Absent
