"""The database `harbor`: captains lead ships."""

from __future__ import annotations

from data_pipelines.world_schema import Database, Date, Label, Number, Parent, Table, Text

CAPTAINS = Table(
    name="captains",
    key="captain_id",
    singular="captain",
    plural="captains",
    rows=59,
    columns=(
        Label(
            "captain",
            noun="captain",
            plural="captains",
            first=("Ada", "Bo", "Cora", "Dan", "Eva", "Finn", "Gus", "Hal", "Ida", "Jon"),
            second=("Berg", "Cole", "Dahl", "Ford", "Holt", "Lind", "Moss", "Reed", "Stone"),
        ),
        Text(
            "home",
            noun="home",
            plural="homes",
            values=("Malta", "Turku", "Porto", "Cork", "Genoa", "Split"),
            where=("from {v}", "whose home is {v}"),
        ),
        Number(
            "pay",
            noun="pay",
            low=200,
            high=899,
            over=("who earn more than {v}", "with pay above {v}"),
            under=("who earn less than {v}", "with pay below {v}"),
            between=("who earn {low} to {high}", "with pay between {low} and {high}"),
            most=("largest pay", "highest pay"),
            least=("smallest pay", "lowest pay"),
        ),
        Date(
            "retired",
            low=2005,
            high=2016,
            null_share=0.41,
            year=("retired in {v}", "who retired in {v}"),
            missing=("still at work", "who never retired"),
            present=("no longer at work", "who have retired"),
        ),
    ),
)

SHIPS = Table(
    name="ships",
    key="ship_id",
    singular="ship",
    plural="ships",
    rows=131,
    parent=Parent("captains", of=("of captains", "led by captains")),
    columns=(
        Label(
            "ship",
            noun="ship",
            plural="ships",
            first=(
                "North",
                "South",
                "Blue",
                "Silver",
                "Royal",
                "Ocean",
                "Polar",
                "Morning",
                "Storm",
                "Iron",
                "Coral",
                "Lucky",
            ),  # fmt: skip
            second=(
                "Star",
                "Wind",
                "Queen",
                "Pearl",
                "Gull",
                "Spirit",
                "Dawn",
                "Arrow",
                "Whale",
                "Anchor",
                "Rose",
                "Light",
            ),  # fmt: skip
        ),
        Text(
            "kind",
            noun="kind",
            plural="kinds",
            values=("ferry", "tanker", "tug", "yacht", "trawler", "barge"),
            where=("of kind {v}", "of the {v} kind"),
        ),
        Number(
            "tons",
            noun="tons",
            low=100,
            high=999,
            over=("heavier than {v} tons", "with tons above {v}"),
            under=("lighter than {v} tons", "with tons below {v}"),
            between=("with {low} to {high} tons", "with tons between {low} and {high}"),
            most=("most tons", "highest tons"),
            least=("fewest tons", "lowest tons"),
        ),
        Number(
            "crew",
            noun="crew",
            low=10,
            high=299,
            over=("with more than {v} crew", "with a crew above {v}"),
            under=("with fewer than {v} crew", "with a crew below {v}"),
            between=("with {low} to {high} crew", "with a crew between {low} and {high}"),
            most=("largest crew", "highest crew"),
            least=("smallest crew", "lowest crew"),
        ),
        Date(
            "built",
            low=1970,
            high=1989,
            year=("built in {v}", "that were built in {v}"),
        ),
    ),
)

HARBOR = Database("harbor", (CAPTAINS, SHIPS))
