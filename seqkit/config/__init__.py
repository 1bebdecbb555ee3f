"""Recipes: from YAML and the command line to built components."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "builder": ["Built", "build", "build_model"],
        "recipe": [
            "find_recipe",
            "load_yaml",
            "read_recipe",
            "recipe_folder",
            "recipe_names",
            "to_yaml",
        ],
        "docs": ["explain"],
        "record": ["Config"],
        "mixture": ["complete"],
        "overrides": ["dotted"],
    },
)
