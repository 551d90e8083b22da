"""Write the Kubernetes manifest of a job: one pod for each worker, parameter server and evaluator.

    python -c 'import secrets; print(secrets.token_hex())' \
        | kubectl create secret generic digits-token --from-file=token=/dev/stdin
    python examples/kubernetes.py digits --image IMAGE --claim VOLUME --workers 2 --evaluator \
        -- python examples/digits.py --model-dir /model --bind-host 0.0.0.0 | kubectl apply -f -
    kubectl logs -f job/digits-worker-0
    kubectl delete jobs,services -l app=digits

IMAGE has paceline and the script, VOLUME is a claim that all pods can write, for checkpoints. Each
pod gets its TF_CONFIG, and the job's secret as a file. Its name is found as soon as it has an
address (`publishNotReadyAddresses`); until then the others look it up again. A pod that fails is
started again by its Job, and training goes on from the last checkpoint. `--bind-host`, an option of
digits.py, lets a task listen on all addresses of its pod, also where its name leads to a proxy. The
evaluator runs the same command; it is none of the cluster, and needs nothing but the volume.

The manifest is JSON, which kubectl takes as it takes YAML. (This file needs nothing but Python.)
"""

from __future__ import annotations

import argparse
import json

PORT = 2222
TOKEN_FOLDER = "/var/run/paceline"


def manifest(args):
    """The service under which the pods find each other, and a Job for each of them."""
    numbers = {"worker": args.workers, "ps": args.ps}
    cluster = {
        kind: [f"{args.name}-{kind}-{index}.{args.name}:{PORT}" for index in range(number)]
        for kind, number in numbers.items()
        if number
    }
    tasks = [(kind, index) for kind, listed in cluster.items() for index in range(len(listed))]
    tasks += [("evaluator", 0)] * args.evaluator
    jobs = [job(args, cluster, kind, index) for kind, index in tasks]
    return {"apiVersion": "v1", "kind": "List", "items": [service(args.name), *jobs]}


def service(name):
    """Without an address of its own (headless): it gives each pod a name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app": name},
            "ports": [{"port": PORT}],
        },
    }


def job(args, cluster, kind, index):
    """The Job of one task: its pod is started again when it fails."""
    name, labels = f"{args.name}-{kind}-{index}", {"app": args.name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": args.restarts,
            "template": {
                "metadata": {"labels": labels},
                "spec": pod(
                    args, name, {"cluster": cluster, "task": {"type": kind, "index": index}}
                ),
            },
        },
    }


def pod(args, hostname, tf_config):
    """One container, the secret and the volume."""
    token = {"secretName": f"{args.name}-token", "defaultMode": 0o400}
    return {
        "hostname": hostname,
        "subdomain": args.name,
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "task",
                "image": args.image,
                "command": args.command,
                "env": [
                    {"name": "TF_CONFIG", "value": json.dumps(tf_config)},
                    {"name": "PACELINE_TOKEN_FILE", "value": f"{TOKEN_FOLDER}/token"},
                ],
                "ports": [{"containerPort": PORT}],
                "volumeMounts": [
                    {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
                    {"name": "model", "mountPath": "/model"},
                ],
            }
        ],
        "volumes": [
            {"name": "token", "secret": token},
            {"name": "model", "persistentVolumeClaim": {"claimName": args.claim}},
        ],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", help="of the job; its secret is NAME-token")
    parser.add_argument("--image", required=True, help="a container image with the script")
    parser.add_argument("--claim", required=True, help="a persistent volume claim, for /model")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ps", type=int, default=0, help="parameter servers")
    parser.add_argument("--evaluator", action="store_true", help="evaluate beside the workers")
    parser.add_argument("--restarts", type=int, default=3, help="how often each pod may fail")
    parser.add_argument("command", nargs="+", help="what each pod runs, behind --")
    print(json.dumps(manifest(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
