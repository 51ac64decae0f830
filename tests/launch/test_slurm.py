import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
OPTIONS = ("--config", "configs/quickstart.py", "--workdir", "/shared/a run")
JOB = {
    "SLURM_SUBMIT_DIR": str(ROOT),
    "SLURM_JOB_ID": "123456",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_JOB_NODELIST": "n[1-3]",
}


@pytest.fixture
def slurm(launcher):
    """A scheduler whose srun runs the step for each node, one after the other."""
    launcher.pretend("scontrol", '[ "$1" != show ] || printf "n1\\nn2\\nn3\\n"')
    launcher.pretend(
        "srun",
        'n="${1#--nodes=}"; while [[ "$1" == --* ]]; do shift; done; worst=0\n'
        'for ((i = 0; i < n; i++)); do SLURM_PROCID=$i "$@" || worst=$?; done; exit $worst',
    )
    launcher.pretend_installed(
        f'echo "host $JAX_COORDINATOR_ADDRESS $JAX_NUM_PROCESSES $JAX_PROCESS_ID" >>{launcher.log}'
    )
    return launcher


def test_every_node_runs_the_same_command_and_knows_who_it_is(slurm):
    done = slurm.run("slurm/learner.sh", *OPTIONS, **JOB)
    assert done.returncode == 0, done.stderr
    trained = [call for call in slurm.calls if call.startswith("python")]
    assert trained == [f"python -m jax_t2sql.train {' '.join(OPTIONS)}"] * 3
    hosts = [call.split()[1:] for call in slurm.calls if call.startswith("host ")]
    assert hosts == [["n1:23456", "3", str(n)] for n in range(3)]


def test_one_node_needs_no_coordinator(slurm):
    done = slurm.run("slurm/learner.sh", *OPTIONS, **JOB | {"SLURM_JOB_NUM_NODES": "1"})
    assert done.returncode == 0, done.stderr
    assert [call.split()[1:] for call in slurm.calls if call.startswith("host ")] == [[]]


def test_print_shows_the_step_and_runs_nothing(slurm):
    done = slurm.run("slurm/learner.sh", "--print", *OPTIONS, **JOB)
    assert done.returncode == 0, done.stderr
    export, step = done.stdout.splitlines()
    assert export == "export JAX_COORDINATOR_ADDRESS=n1:23456 JAX_NUM_PROCESSES=3"
    assert step.startswith("srun --nodes=3 --ntasks-per-node=1 --kill-on-bad-exit=1 bash -c ")
    assert shlex.split(step)[-len(OPTIONS) :] == list(OPTIONS)
    assert not [call for call in slurm.calls if not call.startswith("scontrol show")]


@pytest.mark.parametrize(
    ("status", "restarts", "again", "code"),
    [
        (143, "0", True, 0),
        (1, "19", True, 0),
        (1, "20", False, 1),
        (2, "0", False, 2),
        (3, "0", False, 3),
    ],
)
def test_what_was_cut_short_is_queued_again_but_not_for_ever(slurm, status, restarts, again, code):
    slurm.pretend_installed(f"exit {status}")
    done = slurm.run("slurm/learner.sh", *OPTIONS, **JOB | {"SLURM_RESTART_COUNT": restarts})
    assert done.returncode == code
    assert ("scontrol requeue 123456" in slurm.calls) == again
    assert ("given up" in done.stderr) == (restarts == "20")


def test_an_element_of_the_array_has_names_and_ports_of_its_own(launcher):
    def lines(element):
        environment = {
            "SLURM_SUBMIT_DIR": str(ROOT),
            "SLURM_ARRAY_JOB_ID": "77",
            "SLURM_ARRAY_TASK_ID": str(element),
            "CUDA_VISIBLE_DEVICES": "0,1",
        }
        done = launcher.run("slurm/samplers.sh", "--print", "/bus", "--groups", "4", **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    found = [line for element in range(3) for line in lines(element)]
    assert len(found) == 6 and launcher.calls == []
    for pattern in (r"--name (\S+)", r"vllm:(\S+)"):
        assert len({re.search(pattern, line)[1] for line in found}) == 6
    assert all(line.endswith("--groups 4") and "--bus /bus" in line for line in found)


@pytest.mark.parametrize(
    ("script", "arguments", "environment", "message"),
    [
        ("learner", (), {}, "nothing to train"),
        ("learner", OPTIONS, {}, "not in a Slurm job"),
        ("learner", OPTIONS, {"SLURM_SUBMIT_DIR": "/"}, "submit from the repository's root"),
        ("samplers", (), {}, "which bus"),
        ("samplers", ("/bus",), {}, "the job has no GPU"),
        ("samplers", ("/bus",), {"SLURM_SUBMIT_DIR": "/"}, "submit from the repository's root"),
    ],
)
def test_what_it_cannot_use_is_one_error(launcher, script, arguments, environment, message):
    environment = {"SLURM_SUBMIT_DIR": str(ROOT)} | environment
    done = launcher.run(f"slurm/{script}.sh", *arguments, **environment)
    assert done.returncode == 2 and done.stdout == "" and launcher.calls == []
    assert done.stderr.startswith("error: ") and message in done.stderr
