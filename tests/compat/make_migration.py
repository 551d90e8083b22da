"""Write the last table of docs/migration.md from the tables of `paceline.compat.tf`.

    python tests/compat/make_migration.py

A row is a public name of tf.data, tf.distribute or tf.estimator (`tensorflow_names.txt`) and where
it is found here, or what to use instead.
"""

from importlib import import_module
from pathlib import Path

import paceline
from paceline.compat.tf.advice import advice

HERE = Path(__file__).parent
GUIDE = HERE.parents[1] / "docs" / "migration.md"
NAMES = (HERE / "tensorflow_names.txt").read_text("utf-8").split()
TITLE = "## Every name of `tf.estimator`, `tf.distribute` and `tf.data`\n\n"
FACES = (
    "",
    ".estimator",
    ".estimator.export",
    ".strategies",
    ".inputs",
    ".cluster",
    ".compat.tf.data",
    ".compat.tf.estimator",
)


def meaning(name):
    """What stands for a name of TensorFlow.

    Raises:
        AttributeError: Nothing does; with what to use instead.
    """
    value = import_module("paceline.compat.tf")
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value


def place(value):
    """The name by which users of this package import a class or function."""
    for face in FACES:
        module = import_module(f"paceline{face}")
        for name in getattr(module, "__all__", None) or vars(module):
            if getattr(module, name) is value and not name.startswith("_"):
                return f"{module.__name__}.{name}"
    raise LookupError(f"{value!r} has no public name")


def row(name):
    """The line of the table; of a method, or an attribute, that of its class."""
    owner, _, attribute = name.rpartition(".")
    try:
        value = meaning(name)
        is_member = owner.rpartition(".")[2][:1].isupper()
        if isinstance(value, int):
            ours = f"paceline.compat.tf.data.{attribute}"
        else:
            ours = f"{place(meaning(owner))}.{attribute}" if is_member else place(value)
        return f"| `{name}` | `{ours}` |"
    except AttributeError:
        return f"| `{name}` | not there: {instead(name)} |"


def instead(name):
    """What to use instead of a name, or of the module that it is in."""
    parts = name.split(".")
    beginnings = [".".join(parts[:n]) for n in range(len(parts), 1, -1)]
    return next(advice()[b] for b in beginnings if b in advice())


def table():
    """The section of the guide."""
    lines = [row(name) for name in NAMES]
    return "\n".join([TITLE + "| TensorFlow | here |", "|---|---|", *lines]) + "\n"


def guide_with_table(text):
    """The guide with this table in the place of the one that it has."""
    before, _, after = text.partition(TITLE)
    _, _, rest = after.partition("\n## ")
    return before + table() + ("\n## " + rest if rest else "")


if __name__ == "__main__":
    GUIDE.write_text(guide_with_table(GUIDE.read_text("utf-8")), "utf-8")
    print(f"{len(NAMES)} names of TensorFlow, for paceline {paceline.__version__}")
