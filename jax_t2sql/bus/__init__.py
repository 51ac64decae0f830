"""The bus: an append-only log in an object store, through which learner and samplers work together.

The log is the run. `start_or_takeover` gives the learner's end (`LearnerBus`), `SamplerBus` is the
samplers'; `open_store` opens a directory or a bucket for either. The rules of the protocol stand in
the docstrings of `learner_side` (a step, a restart), `entries` (the format), `state` (what entries
mean), `store` (how an object is created once) and `groups` (what is believed of a group).
"""

from jax_t2sql.bus.adapters import fetch_adapter, put_adapter, read_adapter
from jax_t2sql.bus.contract import Bounds, Contract
from jax_t2sql.bus.entries import (
    AdapterRef,
    Batch,
    Decision,
    End,
    Issue,
    Outcome,
    Publish,
    Quarantine,
    Start,
    Takeover,
    Task,
)
from jax_t2sql.bus.faults import (
    BadObject,
    ContractError,
    LogError,
    LostLeadership,
    NoRun,
    RunEnded,
)
from jax_t2sql.bus.groups import Group, Rollout
from jax_t2sql.bus.intake import ReadyGroup
from jax_t2sql.bus.learner_side import LearnerBus
from jax_t2sql.bus.log import Log
from jax_t2sql.bus.preflight import check_bus
from jax_t2sql.bus.replay import ReplayStep
from jax_t2sql.bus.retention import collect_adapters, collect_groups
from jax_t2sql.bus.sampler_side import SamplerBus
from jax_t2sql.bus.samplers import Heartbeat, read_heartbeats
from jax_t2sql.bus.startup import read_run, start_or_takeover
from jax_t2sql.bus.state import RunState
from jax_t2sql.bus.store import Store, open_store
from jax_t2sql.bus.window import NewTask

__all__ = [
    "AdapterRef",
    "BadObject",
    "Batch",
    "Bounds",
    "Contract",
    "ContractError",
    "Decision",
    "End",
    "Group",
    "Heartbeat",
    "Issue",
    "LearnerBus",
    "Log",
    "LogError",
    "LostLeadership",
    "NewTask",
    "NoRun",
    "Outcome",
    "Publish",
    "Quarantine",
    "ReadyGroup",
    "ReplayStep",
    "Rollout",
    "RunEnded",
    "RunState",
    "SamplerBus",
    "Start",
    "Store",
    "Takeover",
    "Task",
    "check_bus",
    "collect_adapters",
    "collect_groups",
    "fetch_adapter",
    "open_store",
    "put_adapter",
    "read_adapter",
    "read_heartbeats",
    "read_run",
    "start_or_takeover",
]
