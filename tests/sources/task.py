"""One task of the tutorial of several workers (S2): `task.py MODEL_DIR`, placed by TF_CONFIG.

The page describes two workers on fixed ports and is to be started once for each: ports and place
are those of this task, and its directory is this test's.
"""

import json
import os
import sys

from pages import blocks

if __name__ == "__main__":
    here = os.environ["TF_CONFIG"]
    names = {"__name__": "tutorial"}
    for block in blocks("S2"):
        block.run(names, model_dir=sys.argv[1])
        if block.name == "S2_05":  # which has set TF_CONFIG
            described = json.loads(os.environ["TF_CONFIG"])
            assert len(described["cluster"]["worker"]) == len(json.loads(here)["cluster"]["worker"])
            os.environ["TF_CONFIG"] = here
    print("ended at step", names["classifier"].get_variable_value("global_step"))
