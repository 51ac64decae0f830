import re
import signal
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent.parent / "launch" / "samplers.sh"


def commands(done):
    """Without the interpreter."""
    assert done.returncode == 0, done.stderr
    return sorted(line.partition("/bin/python ")[2] for line in done.stdout.splitlines())


def test_print_shows_one_sampler_a_server(launcher):
    servers = ("http://a:1", "http://b:2")
    done = launcher.run(
        "samplers.sh", "--print", "s3://bucket/run", *servers, "--", "--groups", "3"
    )
    first, second = commands(done)
    assert first.startswith("-m jax_t2sql.sample --bus s3://bucket/run --policy vllm:http://a:1")
    assert "vllm:http://b:2" in second
    assert first.endswith("--groups 3") and second.endswith("--groups 3")
    assert first.split("--name ")[1] != second.split("--name ")[1]
    assert launcher.calls == []


def test_print_shows_a_server_of_its_own_for_each_gpu(launcher):
    done = launcher.run("samplers.sh", "--print", "/bus", GPUS="0 3", VLLM_PYTHON="/v/bin/python")
    assert [line.split("vllm:")[1].split()[0] for line in commands(done)] == [
        "http://127.0.0.1:8100",
        "http://127.0.0.1:8103",
    ]
    lines = done.stdout.splitlines()
    assert [line.split(" ")[:2] for line in lines] == [
        ["env", "CUDA_VISIBLE_DEVICES=0"],
        ["env", "CUDA_VISIBLE_DEVICES=3"],
    ]
    assert all("--spawn-vllm --vllm-python /v/bin/python" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "gpus", "message"),
    [
        ((), "", "which bus"),
        (("--print",), "", "which bus"),
        (("/bus",), "", "no server"),
        (("/bus", "a:1"), "", "a:1 is no server"),
        (("/bus", "http://"), "", "http:// is no server"),
        (("/bus", "--groups", "3"), "", "--groups is no server; .* after --"),
        (("--prnt", "/bus"), "", "unknown option --prnt"),
        (("/bus",), "0,1", "GPUS holds 0,1"),
    ],
)
def test_what_it_cannot_use_is_one_error(launcher, arguments, gpus, message):
    done = launcher.run("samplers.sh", *arguments, GPUS=gpus)
    assert done.returncode == 2 and done.stdout == ""
    assert re.search(f"^error: .*{message}", done.stderr)


def test_a_port_that_is_no_number_is_one_error(launcher):
    done = launcher.run("samplers.sh", "--print", "/bus", GPUS="0", PORT="abc")
    assert done.returncode == 2 and "PORT is abc; give a number" in done.stderr


def test_a_sampler_that_fails_is_started_again_until_the_run_has_ended(launcher):
    launcher.pretend_installed(f'[ "$(grep -c sample {launcher.log})" -ge 3 ] || exit 1')
    done = launcher.run("samplers.sh", "/bus", "http://a:1")
    assert done.returncode == 0, done.stderr
    assert len(launcher.calls) == 3
    assert done.stderr.count("ended with status 1; again") == 2


def test_refused_input_is_not_tried_again(launcher):
    launcher.pretend_installed('case "$*" in *http://a:1*) exit 2;; esac')
    done = launcher.run("samplers.sh", "/bus", "http://a:1", "http://b:2")
    assert done.returncode == 2 and len(launcher.calls) == 2


def test_sigterm_is_passed_on_and_waited_for(launcher):
    launcher.pretend_installed(
        f"trap 'echo left >>{launcher.log}; exit 143' TERM; echo up; while :; do read -t 1; done"
        f" <> <(:)"
    )
    command = [str(SCRIPT), "/bus", "http://a:1", "http://b:2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=launcher.environment()
    ) as process:
        assert [process.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
    assert launcher.calls.count("left") == 2 and len(launcher.calls) == 4
