"""The database `cinema`: studios make films."""

from __future__ import annotations

from data_pipelines.world_schema import Database, Date, Label, Number, Parent, Table, Text

STUDIOS = Table(
    name="studios",
    key="studio_id",
    singular="studio",
    plural="studios",
    rows=43,
    columns=(
        Label(
            "studio",
            noun="studio",
            plural="studios",
            first=("Amber", "Beacon", "Cobalt", "Delta", "Ember", "Falcon", "Granite", "Harvest"),
            second=("Pictures", "Films", "House", "Works", "Lane", "Media"),
        ),
        Text(
            "city",
            noun="city",
            plural="cities",
            values=("Oslo", "Rome", "Lima", "Cairo", "Delhi", "Paris"),
            where=("in {v}", "from the city {v}"),
        ),
        Number(
            "staff",
            noun="staff",
            low=20,
            high=399,
            over=("with more than {v} staff", "with staff above {v}"),
            under=("with fewer than {v} staff", "with staff below {v}"),
            between=("with {low} to {high} staff", "with staff between {low} and {high}"),
            most=("most staff", "highest staff"),
            least=("fewest staff", "lowest staff"),
        ),
        Date(
            "closed",
            low=2001,
            high=2012,
            null_share=0.42,
            year=("closed in {v}", "that closed in {v}"),
            missing=("still open", "that never closed"),
            present=("no longer open", "that have closed"),
        ),
    ),
)

FILMS = Table(
    name="films",
    key="film_id",
    singular="film",
    plural="films",
    rows=107,
    parent=Parent("studios", of=("of studios", "made by studios")),
    columns=(
        Label(
            "title",
            noun="title",
            plural="titles",
            first=(
                "Silent",
                "Golden",
                "Broken",
                "Distant",
                "Hidden",
                "Last",
                "Paper",
                "Winter",
                "Crimson",
                "Hollow",
                "Velvet",
                "Wild",
            ),  # fmt: skip
            second=(
                "River",
                "Garden",
                "Letter",
                "Mirror",
                "Station",
                "Summer",
                "Harvest",
                "Bridge",
                "Orchard",
                "Signal",
                "Tide",
                "Crown",
            ),  # fmt: skip
        ),
        Text(
            "genre",
            noun="genre",
            plural="genres",
            values=("drama", "comedy", "horror", "western", "crime", "war", "sport"),
            where=("of genre {v}", "in the genre {v}"),
        ),
        Text(
            "award",
            noun="award",
            plural="awards",
            values=("gold", "silver", "bronze", "jury"),
            null_share=0.37,
            where=("that won {v}", "with the award {v}"),
            missing=("without an award", "that won no award"),
            present=("with an award", "that won an award"),
        ),
        Number(
            "minutes",
            noun="minutes",
            low=61,
            high=240,
            over=("longer than {v} minutes", "with minutes above {v}"),
            under=("shorter than {v} minutes", "with minutes below {v}"),
            between=("with {low} to {high} minutes", "with minutes between {low} and {high}"),
            most=("most minutes", "highest minutes"),
            least=("fewest minutes", "lowest minutes"),
        ),
        Number(
            "budget",
            noun="budget",
            low=100,
            high=999,
            over=("that cost more than {v}", "with a budget above {v}"),
            under=("that cost less than {v}", "with a budget below {v}"),
            between=("that cost {low} to {high}", "with a budget between {low} and {high}"),
            most=("largest budget", "highest budget"),
            least=("smallest budget", "lowest budget"),
        ),
        Date(
            "released",
            low=1990,
            high=2009,
            year=("released in {v}", "that came out in {v}"),
        ),
    ),
)

CINEMA = Database("cinema", (STUDIOS, FILMS))
