"""The manifests against the schemas of Kubernetes, and against the programs that they start."""

import shlex
from pathlib import Path

import pytest
import tyro

from jax_t2sql.sample import SampleArgs, server_url

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="needs pip install kubernetes-validate"
)
yaml = pytest.importorskip("yaml")

FOLDER = Path(__file__).resolve().parent.parent.parent / "launch" / "kubernetes"
VERSION = "1.33"


def manifest(name):
    (document,) = yaml.safe_load_all((FOLDER / name).read_text())
    return document


def environment(container):
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


def test_the_samplers_are_a_valid_deployment():
    kubernetes_validate.validate(manifest("samplers.yaml"), VERSION, strict=True)


def test_the_schemas_find_faults():
    broken = manifest("samplers.yaml")
    broken["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSION, strict=True)


def check_jobset(jobset):
    """The fields of jobset.x-k8s.io/v1alpha2 that we use, by its published API."""
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert set(jobset) == {"apiVersion", "kind", "metadata", "spec"}
    spec = jobset["spec"]
    assert set(spec) <= {"network", "successPolicy", "failurePolicy", "replicatedJobs", "suspend"}
    assert set(spec["network"]) <= {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"}
    assert isinstance(spec["network"]["enableDNSHostnames"], bool)
    assert spec["successPolicy"].keys() <= {"operator", "targetReplicatedJobs"}
    assert spec["successPolicy"]["operator"] in ("All", "Any")
    policy = spec["failurePolicy"]
    assert set(policy) <= {"maxRestarts", "rules", "restartStrategy"}
    assert isinstance(policy["maxRestarts"], int)
    for rule in policy["rules"]:
        assert set(rule) <= {"name", "action", "onJobFailureReasons", "targetReplicatedJobs"}
        assert rule["action"] in (
            "FailJobSet",
            "RestartJobSet",
            "RestartJobSetAndIgnoreMaxRestarts",
        )
        assert set(rule["onJobFailureReasons"]) <= {
            "BackoffLimitExceeded",
            "DeadlineExceeded",
            "FailedIndexes",
            "MaxFailedIndexesExceeded",
            "PodFailurePolicy",
        }
    for job in spec["replicatedJobs"]:
        assert set(job) == {"name", "replicas", "template"} and job["replicas"] >= 1
        whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}}
        kubernetes_validate.validate(whole | job["template"], VERSION, strict=True)


def test_the_learner_is_a_valid_jobset():
    check_jobset(manifest("learner.yaml"))


def test_the_hosts_of_the_learner_know_who_they_are():
    jobset = manifest("learner.yaml")
    (job,) = jobset["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    known = environment(container)
    assert str(spec["parallelism"]) == str(spec["completions"]) == known["JAX_NUM_PROCESSES"]
    assert spec["completionMode"] == "Indexed"
    first = (
        f"{jobset['metadata']['name']}-{job['name']}-0-0.{jobset['spec']['network']['subdomain']}"
    )
    port = container["ports"][0]["containerPort"]
    assert known["JAX_COORDINATOR_ADDRESS"] == f"{first}:{port}"
    index = known["JAX_PROCESS_ID"]["fieldRef"]["fieldPath"]
    assert index == "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def test_the_learner_has_time_to_save_and_stops_at_bad_input():
    jobset = manifest("learner.yaml")
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > 25
    assert spec["template"]["spec"]["restartPolicy"] == "Never" and spec["backoffLimit"] == 0
    (rule,) = spec["podFailurePolicy"]["rules"]
    names = [c["name"] for c in spec["template"]["spec"]["containers"]]
    assert rule["onExitCodes"]["values"] == [2, 3] and rule["onExitCodes"]["containerName"] in names
    (policy,) = jobset["spec"]["failurePolicy"]["rules"]
    assert policy["onJobFailureReasons"] == ["PodFailurePolicy"]


def test_the_programs_take_these_options():
    from jax_t2sql.train import parse

    (learner,) = manifest("learner.yaml")["spec"]["replicatedJobs"][0]["template"]["spec"][
        "template"
    ]["spec"]["containers"]
    assert learner["command"] == ["python", "-m", "jax_t2sql.train"]
    assert str(parse(learner["args"]).workdir) == "/run/jax-t2sql"
    vllm, sampler = manifest("samplers.yaml")["spec"]["template"]["spec"]["containers"]
    assert sampler["command"] == ["python", "-m", "jax_t2sql.sample"]
    args = tyro.cli(SampleArgs, args=sampler["args"])
    served = dict(word.removeprefix("--").split("=") for word in vllm["args"] if "=" in word)
    assert server_url(args.policy) == f"http://127.0.0.1:{served['port']}"
    assert str(args.model) == served["model"], "the base that the server has"
    assert served["logprobs-mode"] == "processed_logprobs" and "--enable-lora" in vllm["args"]
    assert environment(vllm)["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"


def test_server_and_sampler_see_the_same_files():
    spec = manifest("samplers.yaml")["spec"]["template"]["spec"]
    vllm, sampler = (
        {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        for container in spec["containers"]
    )
    assert sampler.items() <= vllm.items()
    assert vllm.keys() == {volume["name"] for volume in spec["volumes"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert spec["containers"][0][probe]["httpGet"]["path"] == "/health"


@pytest.mark.parametrize("name", ["learner.yaml", "samplers.yaml"])
def test_the_command_in_the_comment_names_the_file(name):
    commands = [
        shlex.split(line.lstrip("# "))
        for line in (FOLDER / name).read_text().splitlines()
        if line.lstrip("# ").startswith("kubectl apply")
    ]
    assert commands == [["kubectl", "apply", "-f", f"launch/kubernetes/{name}"]]
