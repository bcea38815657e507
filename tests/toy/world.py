"""The closed world of the toy model: what it knows, and one generator of questions per skill.

A generator takes a random.Random and returns an Item. All text is our own. What an Item's `key` says decides whether it is held out, so
that no held-out question is ever trained (make_data.py).
"""

import dataclasses
import hashlib
import json

CAPITALS = dict(
    France="Paris",
    Norway="Oslo",
    Italy="Rome",
    Spain="Madrid",
    Germany="Berlin",
    Poland="Warsaw",
    Greece="Athens",
    Egypt="Cairo",
    Japan="Tokyo",
    China="Beijing",
    Peru="Lima",
    Cuba="Havana",
    Canada="Ottawa",
    Kenya="Nairobi",
    Austria="Vienna",
    Hungary="Budapest",
    Portugal="Lisbon",
    Ireland="Dublin",
    Finland="Helsinki",
    Sweden="Stockholm",
)
COLOURS = dict(
    grass="green",
    snow="white",
    coal="black",
    blood="red",
    gold="yellow",
    milk="white",
    clay="brown",
    ice="blue",
    ash="grey",
    leaf="green",
    crow="black",
    rose="red",
    lemon="yellow",
    sky="blue",
    soil="brown",
    smoke="grey",
)
# Made up: town -> (river, mayor, flag)
TOWNS = dict(
    Arvel=("Mira", "Tilda", "red"),
    Bonto=("Sarn", "Oskar", "blue"),
    Cerin=("Lusk", "Wanda", "green"),
    Dovik=("Pell", "Hugo", "white"),
    Elmar=("Tyne", "Greta", "black"),
    Fosta=("Orn", "Viktor", "yellow"),
    Galdo=("Wick", "Selma", "brown"),
    Hemra=("Zeel", "Bruno", "grey"),
    Istok=("Kell", "Paula", "red"),
    Jorun=("Vask", "Edgar", "green"),
    Kelva=("Dorn", "Nadia", "blue"),
    Lomax=("Fira", "Simon", "white"),
)
PEOPLE = ["Ana", "Bo", "Carl", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jan", "Kim", "Lena", "Max", "Nora", "Otto", "Pia"]
WORDS = (
    "river stone fox cup red blue green apple pear plum bread salt lamp chair table door window garden house horse cow sheep bird fish "
    "cloud rain snow wind moon star sun road bridge hill field forest lake sea ship boat train wheel clock bell book paper pen ink rope "
    "knife spoon plate bowl glass milk honey sugar butter cheese egg corn wheat rice bean soup cake shirt coat hat shoe sock glove ring"
).split()
PETS = ["cat", "dog", "bird", "fish", "horse"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
SKY = ["sun", "rain", "snow", "wind", "fog", "clouds"]
UNKNOWN = "I do not know."
CITIES = [*CAPITALS.values(), *TOWNS]


@dataclasses.dataclass
class Item:
    skill: str
    key: str
    question: str
    answer: str
    short: str | None = None  # what is left when asked to answer briefly
    reasons: tuple = ("", "", "")  # at low, high and max effort
    before: tuple = ()  # (question, answer) turns
    tools: list | None = None
    schema: dict | None = None
    calls: list | None = None  # [(name, arguments)], then `results` and `answer`
    results: list | None = None
    label: str | None = None  # what tables call the skill, when not `skill`


def held_out(item):
    """A twelfth of all keys is never trained, in no conversation."""
    return int(hashlib.sha256(f"{item.skill}|{item.key}".encode()).hexdigest(), 16) % 12 == 0


def pick(rng, *choices):
    return rng.choice(choices)


def made_name(rng):
    return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 3))).capitalize()


def recall(fact):
    return (f"Recall: {fact}", f"I look in what I know. {fact}", f"I look in what I know. {fact} I am sure of it.")


def capitals(rng):
    country = rng.choice(list(CAPITALS))
    city = CAPITALS[country]
    form = rng.randrange(6)
    question = [
        f"What is the capital of {country}?",
        f"Which city is the capital of {country}?",
        f"Tell me the capital of {country}.",
        f"Name the capital of {country}.",
        f"{country} has which capital?",
        f"{city} is the capital of which country?",
    ][form]
    fact = f"The capital of {country} is {city}."
    if form == 5:
        return Item("facts", f"c{country}{form}", question, f"{city} is the capital of {country}.", country, recall(fact))
    return Item("facts", f"c{country}{form}", question, fact, city, recall(fact))


def colours(rng):
    thing = rng.choice(list(COLOURS))
    colour, form = COLOURS[thing], rng.randrange(4)
    question = [
        f"What colour is {thing}?",
        f"Which colour has {thing}?",
        f"Tell me the colour of {thing}.",
        f"Name the colour of {thing}.",
    ][form]
    fact = f"The colour of {thing} is {colour}."
    return Item("facts", f"k{thing}{form}", question, fact, colour, recall(fact))


def towns(rng):
    town, what, form = rng.choice(list(TOWNS)), rng.randrange(3), rng.randrange(4)
    noun, value = ("river", "mayor", "flag")[what], TOWNS[town][what]
    question = [
        f"What is the {noun} of {town}?",
        f"Tell me the {noun} of {town}.",
        f"Name the {noun} of {town}.",
        f"{town} has which {noun}?",
    ][form]
    fact = f"The {noun} of {town} is {value}."
    return Item("towns", f"{town}{noun}{form}", question, fact, value, recall(fact))


def unknown(rng):
    name, form = made_name(rng), rng.randrange(8)
    question = [
        f"What is the capital of {name}?",
        f"Who is the mayor of {name}?",
        f"What is the river of {name}?",
        f"Tell me the flag of {name}.",
        f"What colour is the house of {rng.choice(PEOPLE)}?",
        f"How old is {rng.choice(PEOPLE)}?",
        f"Where does {rng.choice(PEOPLE)} live?",
        f"Name the mayor of {rng.choice(list(CAPITALS))}.",
    ][form]
    missing = "I look in what I know. It is not there."
    return Item("unknown", question, question, UNKNOWN, UNKNOWN, ("It is not in what I know.", missing, missing + " I must not guess."))


def sums(rng):
    a, b = rng.randint(0, 99), rng.randint(0, 99)
    total, ones, tens = a + b, a % 10 + b % 10, a // 10 + b // 10
    carry = ones // 10
    low = f"{a % 10} + {b % 10} = {ones}. {a // 10} + {b // 10} + {carry} = {tens + carry}."
    high = f"Ones: {a % 10} + {b % 10} = {ones}, write {ones % 10}, carry {carry}. Tens: {a // 10} + {b // 10} + {carry} = {tens + carry}."
    question = pick(rng, f"What is {a} + {b}?", f"Add {a} and {b}.", f"{a} + {b} = ?", f"What is the sum of {a} and {b}?")
    return Item(
        "sums", f"{a}+{b}", question, f"{a} + {b} = {total}", str(total), (low, high, f"{high} So {total}. Check: {total} - {b} = {a}.")
    )


def counting(rng):
    form = rng.randrange(3)
    if form == 2:
        words = [rng.choice(WORDS) for _ in range(rng.randint(1, 8))]
        n, text = len(words), " ".join(words)
        steps = ", ".join(f"{w} {i + 1}" for i, w in enumerate(words))
        question = pick(rng, f"How many words are here: {text}", f"Count the words: {text}")
        return Item(
            "counting",
            text,
            question,
            f"{n} word{'s' * (n > 1)}",
            str(n),
            (f"{steps}.", f"I count: {steps}.", f"I count: {steps}. So {n}."),
        )
    first = rng.randint(0, 90)
    last = first + rng.randint(2, 9)
    numbers = list(range(first, last + 1))
    if form == 1:
        first, last, numbers = last, first, numbers[::-1]
    down = " down" * form
    question = pick(rng, f"Count{down} from {first} to {last}.", f"Please count{down} from {first} to {last}.")
    reason = f"I start at {first} and go {'down' if form else 'up'} to {last}."
    answer = ", ".join(map(str, numbers))
    return Item(
        "counting",
        f"{first}..{last}",
        question,
        answer,
        answer,
        (reason, f"{reason} One step each.", f"{reason} One step each. I leave none out."),
    )


def copying(rng):
    text = (
        "".join(rng.choice("0123456789") for _ in range(rng.randint(3, 9)))
        if rng.random() < 0.3
        else " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 7)))
    )
    question = pick(rng, f"Repeat: {text}", f"Say this again: {text}", f"Copy: {text}")
    return Item(
        "copying", text, question, text, text, ("I repeat it.", "I repeat it as it stands.", "I repeat it as it stands and add nothing.")
    )


def sorting(rng):
    numbers = rng.sample(range(100), rng.randint(2, 5))
    ordered = sorted(numbers)
    text, answer = ", ".join(map(str, numbers)), ", ".join(map(str, ordered))
    question = pick(rng, f"Sort: {text}", f"Sort these numbers: {text}", f"Put in order: {text}")
    low = f"The smallest is {ordered[0]}, the largest is {ordered[-1]}."
    return Item(
        "sorting",
        text,
        question,
        answer,
        answer,
        (low, f"{low} There are {len(numbers)} numbers.", f"{low} There are {len(numbers)} numbers. In order: {answer}."),
    )


def spelling(rng):
    word, form = rng.choice(WORDS), rng.randrange(5)
    question = [
        f"Spell {word}.",
        f"Spell the word {word}.",
        f"How do you spell {word}?",
        f"Give me the letters of {word}.",
        f"Please spell {word}.",
    ][form]
    answer = "-".join(word)
    low = f"The word is {word}."
    return Item(
        "spelling",
        f"{word}{form}",
        question,
        answer,
        answer,
        (low, f"{low} It has {len(word)} letters.", f"{low} It has {len(word)} letters and begins with {word[0]}."),
    )


def dates(rng):
    names, unit = pick(rng, (DAYS, "day"), (MONTHS, "month"))
    i, n, back = rng.randrange(len(names)), rng.randint(1, 4), rng.random() < 0.4
    step = -1 if back else 1
    path = [names[(i + step * k) % len(names)] for k in range(n + 1)]
    side = "before" if back else "after"
    many = f"{n} {unit}s" if n > 1 else f"1 {unit}"
    form = rng.randrange(6)
    question = [
        f"Which {unit} is {many} {side} {names[i]}?",
        f"What {unit} comes {many} {side} {names[i]}?",
        f"{names[i]}: which {unit} is {many} {side} it?",
        f"Name the {unit} {many} {side} {names[i]}.",
        f"Tell me which {unit} comes {many} {side} {names[i]}.",
        f"{many} {side} {names[i]}: which {unit}?",
    ][form]
    steps = ", ".join(path)
    answer = f"{path[-1]} is {many} {side} {names[i]}."
    return Item(
        "dates",
        f"{names[i]}{side}{n}{form}",
        question,
        answer,
        path[-1],
        (f"{steps}.", f"I go {n} step{'s' * (n > 1)}: {steps}.", f"I go {n} step{'s' * (n > 1)}: {steps}. It is {path[-1]}."),
    )


def easy(rng):
    """A question that may stand in any training conversation, before or instead of others."""
    while held_out(item := rng.choice(EASY)(rng)):
        pass
    return item


def memory(rng):
    name, colour, pet = rng.choice(PEOPLE), rng.choice(list(COLOURS.values())), rng.choice(PETS)
    told = pick(
        rng, f"My name is {name}, I like {colour} and I have a {pet}.", f"I am {name}. My colour is {colour} and my pet is a {pet}."
    )
    between = [(q.question, q.answer) for q in (easy(rng) for _ in range(rng.randint(0, 2)))]
    question, answer, short = rng.choice(
        [
            ("What is my name?", f"Your name is {name}.", name),
            ("Which colour do I like?", f"You like {colour}.", colour),
            ("Which pet do I have?", f"You have a {pet}.", pet),
        ]
    )
    said = f"The user said: {told}"
    key = f"{name}{colour}{pet}{question}"
    return Item("memory", key, question, answer, short, (said, said, f"{said} {answer}"), before=((told, f"Hello {name}."), *between))


def json_answers(rng):
    name, age, city, colour = rng.choice(PEOPLE), rng.randint(5, 95), rng.choice(CITIES), rng.choice(list(COLOURS.values()))
    value = dict(name=name, age=age, city=city, colour=colour)
    said = pick(
        rng,
        f"{name} is {age} years old, lives in {city} and likes {colour}.",
        f"{name} from {city} is {age} and likes {colour}.",
        f"{city} is the home of {name}, who is {age} and likes {colour}.",
    )
    fields = rng.sample(list(value), rng.randint(2, 4))
    schema = dict(
        type="object",
        properties={f: dict(type="integer" if f == "age" else "string") for f in fields},
        required=fields,
        additionalProperties=False,
    )
    answer = json.dumps({f: value[f] for f in fields})
    low = "Fields: " + ", ".join(fields) + "."
    return Item(
        "json",
        said + "".join(fields),
        said,
        answer,
        None,
        (low, low + " I fill them in.", low + " I fill them in from the text."),
        schema=schema,
    )


def tool(name, description, **properties):
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {p: {"type": t} for p, t in properties.items()}, "required": list(properties)},
        },
    }


TOOLS = [
    tool("get_weather", "Weather of a city in some days.", city="string", days="integer"),
    tool("get_time", "Time in a city.", city="string"),
    tool("send_note", "Send a note.", to="string", text="string"),
]


def some_tools(rng, needed):
    others = [t for t in TOOLS if t is not needed]
    chosen = ([needed] if needed else []) + rng.sample(others, rng.randint(0 if needed else 1, 2))
    rng.shuffle(chosen)
    return chosen


def some_city(rng):
    return rng.choice(CITIES) if rng.random() < 0.6 else made_name(rng)


def weather_call(rng, city, days):
    temp, sky = rng.randint(0, 35), rng.choice(SKY)
    when = "today" if not days else f"in {days} day{'s' * (days > 1)}"
    return (
        ("get_weather", dict(city=city, days=days)),
        json.dumps(dict(temp=temp, sky=sky)),
        f"{city} {when}: {temp} degrees and {sky}.",
        when,
    )


def weather(rng):
    cities = [some_city(rng)]
    if rng.random() < 0.2:
        cities.append(rng.choice([c for c in CITIES if c not in cities]))
    days = rng.choice([0, 0, 1, 2, 3, 4, 5])
    made = [weather_call(rng, city, days) for city in cities]
    when, places = made[0][3], " and ".join(cities)
    question = pick(
        rng, f"What is the weather in {places} {when}?", f"How is the weather {when} in {places}?", f"Weather in {places} {when}, please."
    )
    low = f"I need the weather of {places}, days {days}."
    return Item(
        "weather",
        f"{places}{days}",
        question,
        " ".join(m[2] for m in made),
        None,
        (low, f"{low} I call get_weather.", f"{low} I call get_weather {len(made)} time{'s' * (len(made) > 1)}."),
        tools=some_tools(rng, TOOLS[0]),
        calls=[m[0] for m in made],
        results=[m[1] for m in made],
    )


def clock(rng):
    city, time = some_city(rng), f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    question = pick(rng, f"What time is it in {city}?", f"Tell me the time in {city}.", f"Time in {city}?")
    low = f"I need the time in {city}."
    return Item(
        "clock",
        city + time[-1],
        question,
        f"It is {time} in {city}.",
        None,
        (low, f"{low} I call get_time.", f"{low} I call get_time once."),
        tools=some_tools(rng, TOOLS[1]),
        calls=[("get_time", dict(city=city))],
        results=[json.dumps(dict(time=time))],
    )


def note(rng):
    to, text = rng.choice(PEOPLE), " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 4)))
    question = pick(rng, f"Send a note to {to}: {text}", f"Write to {to}: {text}", f"Tell {to} this: {text}")
    low = f"A note to {to}."
    return Item(
        "note",
        to + text,
        question,
        f"I sent your note to {to}.",
        None,
        (low, f"{low} I call send_note.", f"{low} I call send_note once."),
        tools=some_tools(rng, TOOLS[2]),
        calls=[("send_note", dict(to=to, text=text))],
        results=[json.dumps(dict(sent=True))],
    )


def tools_idle(rng):
    """Tools are declared, the question needs none of them."""
    item = rng.choice(EASY)(rng)
    item.label, item.tools = "no_tool", some_tools(rng, None)
    return item


EASY = [capitals, colours, towns, sums, copying, dates, spelling]
PLAIN = dict(
    capitals=(capitals, 5),
    colours=(colours, 3),
    towns=(towns, 6),
    unknown=(unknown, 6),
    sums=(sums, 16),
    counting=(counting, 7),
    copying=(copying, 6),
    sorting=(sorting, 9),
    spelling=(spelling, 6),
    dates=(dates, 18),
    memory=(memory, 5),
)
TOOLED = dict(json=(json_answers, 6), weather=(weather, 9), clock=(clock, 4), note=(note, 4), no_tool=(tools_idle, 3))
