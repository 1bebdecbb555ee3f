"""Settings of a `DataModule` by their keys, as a recipe has them."""

from dataclasses import fields

from seqkit.data import Loading, Selection


def records(**settings):
    """The arguments of a `DataModule`, in which `Loading` and `Selection` take their keys."""
    for name, record in (("loading", Loading), ("selection", Selection)):
        own = {field.name for field in fields(record)} & settings.keys()
        if own:
            settings[name] = record(**{key: settings.pop(key) for key in sorted(own)})
    return settings
