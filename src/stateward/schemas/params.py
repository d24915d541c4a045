"""Names, texts and times in requests and responses, with their validation.

The patterns themselves stand in `stateward.naming`: a path, a header and a body accept the same names.
"""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from stateward.naming import END, NAME, NAME_MEANS, PATH_PART, TEXT_MEANS, text_pattern
from stateward.validation_texts import describe_pattern

# what is looked for: also what could not be written any more
TEXT = describe_pattern(rf"^[^\x00-\x1f\x7f]{{1,250}}{END}", "1 to 250 characters long, without control characters")
LABEL = describe_pattern(
    rf"^[^\x00-\x1f\x7f=]{{1,100}}=[^\x00-\x1f\x7f]{{0,250}}{END}",
    "of the form name=value, with a name of 1 to 100 and a value of at most 250 characters",
)
NAMESPACES_MEAN = "a namespace, or * for all of them; for agents NAMESPACE:CLOUDLET, or NAMESPACE:* for all of one"

Plain = Annotated[str, Meta(pattern=NAME, description=NAME_MEANS)]
Namespace = Annotated[
    str,
    Meta(
        pattern=describe_pattern(rf"{NAME}|^\*{END}|{NAME.removesuffix(END)}:\*{END}", NAMESPACES_MEAN),
        description=NAMESPACES_MEAN,
    ),
]
TokenName = Annotated[str, Meta(pattern=text_pattern(1, 200), description=f"whose it is, {TEXT_MEANS}")]
Part = Annotated[str, Meta(pattern=PATH_PART, description="up to 250 signs without a slash")]
Text = Annotated[str, Meta(pattern=TEXT, description="up to 250 signs in one line")]
LabelName = Annotated[str, Meta(pattern=text_pattern(1, 250), description=f"up to 250 signs, {TEXT_MEANS}")]
LabelValue = Annotated[str, Meta(pattern=text_pattern(0, 250), description=f"up to 250 signs, {TEXT_MEANS}")]
Labels = Annotated[dict[LabelName, LabelValue], Meta(max_length=100)]
Priority = Annotated[
    int,
    Meta(
        ge=-1_000_000,
        le=1_000_000,
        description="higher goes first in its lane; above 0 only for administrators of all namespaces",
    ),
]
Facts = Annotated[list[Text], Meta(max_length=100, description="what is true of this request, such as `force`")]
Spec = Annotated[dict[str, Any], Meta(description="what the object is to be, as its kind has it")]
Args = Annotated[dict[str, Any], Meta(description="the action's arguments")]
Time = Annotated[datetime, Meta(tz=True)]
Json = Annotated[Any, Meta(description="any JSON")]
Moment = Annotated[datetime, Meta(tz=True)]
