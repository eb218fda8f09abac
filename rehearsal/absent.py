"""A package that is not there: any name and any submodule of it can be imported, no name can be called.

SGLang imports names of packages that have no CPU build, ``sgl_kernel`` and ``torchvision``, and never calls them where
it runs in plain PyTorch. A copy of this file as such a package's ``__init__.py`` gets it that far, and no further.
"""

import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType


class Absent(ModuleType):
    def __getattr__(self, name):
        # Names with underscores are questions of the import system and of copy and pickle: those need a true answer.
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class Finder(Loader):
    """Makes a module of any name below this package."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.startswith(f"{__name__}.") else None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())
sys.modules[__name__].__class__ = Absent
