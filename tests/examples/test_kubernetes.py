"""CL-10: examples/kubernetes.py writes manifests whose pods find each other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.cluster import TFConfigClusterResolver
from paceline.cluster.token import needs_token

EXAMPLE = Path(__file__).parents[2] / "examples" / "kubernetes.py"
COMMAND = ["python", "train.py", "--bind-host", "0.0.0.0"]


def rendered(*options):
    arguments = ["digits", "--image", "registry/digits:1", "--claim", "models", *options]
    text = subprocess.check_output([sys.executable, EXAMPLE, *arguments, "--", *COMMAND])
    service, *jobs = json.loads(text)["items"]
    return service, [job["spec"]["template"] for job in jobs]


def environ_of(pod):
    return {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ((), ["worker 0", "worker 1"]),
        (
            ("--workers", "3", "--ps", "2", "--evaluator"),
            ["worker 0", "worker 1", "worker 2", "ps 0", "ps 1", "evaluator 0"],
        ),
        (("--workers", "1", "--evaluator"), ["worker 0", "evaluator 0"]),
    ],
)
def test_each_pod_has_its_task_and_all_have_one_cluster(options, tasks):
    _, templates = rendered(*options)
    resolvers = [TFConfigClusterResolver(environ=environ_of(t["spec"])) for t in templates]
    assert [f"{r.task_type} {r.task_id}" for r in resolvers] == tasks
    clusters = [r.cluster_spec().as_dict() for r in resolvers]
    assert all(cluster == clusters[0] for cluster in clusters)
    listed = [f"{kind} {i}" for kind, found in clusters[0].items() for i in range(len(found))]
    assert sorted(listed) == sorted(task for task in tasks if task != "evaluator 0")


def test_the_address_of_a_task_is_that_of_its_pod():
    service, templates = rendered("--ps", "1")
    for template in templates:
        pod = template["spec"]
        resolver = TFConfigClusterResolver(environ=environ_of(pod))
        own = resolver.cluster_spec().as_dict()[resolver.task_type][resolver.task_id]
        (port,) = pod["containers"][0]["ports"]
        assert own == f"{pod['hostname']}.{pod['subdomain']}:{port['containerPort']}"
        assert pod["subdomain"] == service["metadata"]["name"]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()


def test_each_pod_has_the_secret_that_such_a_cluster_needs():
    _, templates = rendered("--evaluator")
    for template in templates:
        pod = template["spec"]
        environ = environ_of(pod)
        assert needs_token(TFConfigClusterResolver(environ=environ).cluster_spec())
        (secret,) = [v for v in pod["volumes"] if "secret" in v]
        (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == secret["name"]]
        assert environ["PACELINE_TOKEN_FILE"] == f"{mount['mountPath']}/token"
        assert secret["secret"] == {"secretName": "digits-token", "defaultMode": 0o400}


def test_each_pod_runs_what_was_asked_for():
    _, templates = rendered()
    for template in templates:
        assert template["spec"]["containers"][0]["command"] == COMMAND
