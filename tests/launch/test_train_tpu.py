import http.server
import re
import shlex
import shutil
import threading

import pytest

TRAINING = ("--", "--config", "configs/quickstart.py", "--workdir", "gs://b/it's here")
SLICE = ("--tpu", "pod", "--zone", "z1")


def run(launcher, *arguments, **environment):
    return launcher.run("train_tpu.sh", *arguments, **environment)


def gcloud(launcher, *, states=("READY",), failures=0, status=1):
    """A gcloud whose slice goes through `states`, and whose ssh fails so often."""
    launcher.pretend(
        "gcloud",
        f"""
        case "$4" in
          describe) set -- {" ".join(states)}; n=$(grep -c describe {launcher.log})
            [ "$n" -lt $# ] || n=$#; state="${{@:n:1}}"; [ "$state" != MISSING ] || exit 1
            echo "$state" ;;
          ssh) [ "$(grep -c -- --worker=all {launcher.log})" -gt {failures} ] || exit {status} ;;
        esac""",
    )


def test_print_shows_the_one_command_for_all_hosts_and_runs_nothing(launcher):
    gcloud(launcher)
    done = run(launcher, "--print", *SLICE, "--project", "p", *TRAINING)
    assert done.returncode == 0 and launcher.calls == []
    (line,) = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    *words, command = shlex.split(line)
    assert words == shlex.split(
        "gcloud compute tpus tpu-vm ssh pod --zone=z1 --project=p --worker=all"
    )
    assert command.startswith("--command=cd jax_t2sql && exec launch/train_tpu.sh -- ")
    assert shlex.split(command)[-5:] == list(TRAINING), "options arrive as they were given"


def test_it_runs_what_it_printed_again_until_success(launcher):
    gcloud(launcher, failures=2, status=255)
    printed = run(launcher, "--print", *SLICE, *TRAINING).stdout.splitlines()[-1]
    done = run(launcher, *SLICE, *TRAINING)
    assert done.returncode == 0, done.stderr
    attempts = [call for call in launcher.calls if "--worker=all" in call]
    assert attempts == [" ".join(shlex.split(printed))] * 3
    assert done.stderr.count("the training on pod ended with status 255; again in") == 2


def test_it_waits_for_a_slice_that_was_preempted(launcher):
    gcloud(launcher, states=("READY", "PREEMPTED", "PREEMPTED", "MISSING", "READY"), failures=1)
    done = run(launcher, *SLICE, *TRAINING)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the slice pod is PREEMPTED; waiting") == 1
    assert done.stderr.count("the slice pod is MISSING; waiting") == 1
    assert [("describe" in call) for call in launcher.calls].count(True) == 5


def test_failures_in_a_row_are_bounded(launcher):
    gcloud(launcher, failures=99, status=7)
    done = run(launcher, "--retries", "3", *SLICE, *TRAINING)
    assert done.returncode == 7
    assert sum("--worker=all" in call for call in launcher.calls) == 4
    assert "error: the training on pod ended with status 7, 4 times in a row" in done.stderr


@pytest.mark.parametrize("status", [2, 3], ids=["bad input", "another leads"])
def test_what_cannot_be_mended_is_not_tried_again(launcher, status):
    gcloud(launcher, failures=99, status=status)
    assert run(launcher, *SLICE, *TRAINING).returncode == status
    assert sum("--worker=all" in call for call in launcher.calls) == 1


def host(done):
    """What a host's command says of coordinator, number of hosts, and itself."""
    assert done.returncode == 0, done.stderr
    return {
        name: value
        for name, _, value in (word.partition("=") for word in shlex.split(done.stdout))
        if name.startswith("JAX_")
    }


def test_a_machine_of_its_own_trains_alone(launcher):
    done = run(launcher, "--print", *TRAINING)
    assert host(done) == {}
    assert shlex.split(done.stdout)[1:] == ["-m", "jax_t2sql.train", *TRAINING[1:]]


def test_a_host_is_told_who_it_is(launcher):
    expected = {
        "JAX_COORDINATOR_ADDRESS": "a:8476",
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "3",
    }
    given = ("--processes", "4", "--process", "3", "--coordinator", "a:8476")
    assert host(run(launcher, "--print", *given, *TRAINING)) == expected
    kubernetes = {"TPU_WORKER_ID": "3", "TPU_WORKER_HOSTNAMES": "a,b,c,d"}
    assert host(run(launcher, "--print", *TRAINING, **kubernetes)) == expected
    alone = {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
    assert host(run(launcher, "--print", *TRAINING, **alone)) == {}


def test_a_vm_asks_its_metadata(launcher):
    answers = {
        "/worker-network-endpoints": b"unknown:unknown:10.0.0.2,unknown:unknown:10.0.0.3",
        "/agent-worker-number": b"1",
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            assert self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers[self.path])

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = run(launcher, "--print", *TRAINING, METADATA_URL=url, no_proxy="127.0.0.1")
        server.shutdown()
    assert host(done) == {
        "JAX_COORDINATOR_ADDRESS": "10.0.0.2:8476",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
    }


def test_inside_a_vm_it_runs_once(launcher):
    launcher.pretend_installed("exit 5")
    done = run(launcher, *TRAINING)
    assert done.returncode == 5
    assert launcher.calls == [f"python -m jax_t2sql.train {' '.join(TRAINING[1:])}"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to train"),
        (("--",), "nothing to train"),
        (("--config", "c"), "unknown option --config; options of the training go after --"),
        (("--tpu", "pod", *TRAINING), "--tpu pod needs --zone"),
        (("--zone", "z", *TRAINING), "belong to --tpu"),
        (("--tpu", *TRAINING), "--tpu needs a value"),
        (("--retries", "x", *TRAINING), "--retries is x"),
        ((*SLICE, "--process", "1", *TRAINING), "leave them out with --tpu"),
        (("--process", "1", *TRAINING), "go together"),
        (
            ("--processes", "2", "--process", "2", "--coordinator", "a:1", *TRAINING),
            "host 2 of 2; hosts count from 0 to 1",
        ),
        (
            ("--processes", "2", "--process", "1", "--coordinator", "a", *TRAINING),
            "give HOST:PORT",
        ),
    ],
)
def test_what_it_cannot_use_is_one_error(launcher, arguments, message):
    done = run(launcher, *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert re.search(f"^error: .*{message}", done.stderr), done.stderr


def test_without_gcloud_it_says_so(launcher):
    bare = launcher.folder / "bare"
    bare.mkdir()
    for name in ("bash", "dirname", "sed"):
        (bare / name).symlink_to(shutil.which(name))
    done = run(launcher, *SLICE, *TRAINING, PATH=str(bare))
    assert done.returncode == 2 and done.stderr.startswith("error: gcloud not found")
