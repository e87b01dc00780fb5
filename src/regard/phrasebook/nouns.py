"""Nouns by semantic kind, and the adjectives that can describe them.

A noun is `English = Italian gender`, with the plural after a slash if it is irregular; `mf` is masculine in the
singular and feminine in the plural. Verbs select their objects, and adjectives their nouns, by kind.

An adjective is `English = Italian`, masculine singular; `^` marks those before the noun: un bel libro. Some fit only
the nouns in brackets, or all but those after a minus. An English adjective may have two translations for two kinds: an
old man is `anziano`, an old car `vecchia`.
"""

import re
from dataclasses import dataclass
from functools import cache

from regard.phrasebook import english, italian
from regard.phrasebook.italian import Gender


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun in both languages. Mass nouns have no plural, pairs (trousers) no singular."""

    english: str
    english_plural: str
    italian: str
    italian_plural: str
    gender: Gender
    plural_gender: Gender
    kind: str

    @property
    def is_mass(self) -> bool:
        """Whether it is a mass noun: bread, water."""
        return self.kind in MASS_KINDS

    @property
    def is_pair(self) -> bool:
        """Whether it is always plural: trousers, parents."""
        return self.kind in PLURAL_KINDS


MASS_KINDS = {"larder", "prepared", "basics", "drink", "meal", "language", "studies", "sound"}
PLURAL_KINDS = {"pair", "pasta", "parents"}

_TABLE = {
    "larder": """
        bread = pane m; meat = carne f; fish = pesce m; cheese = formaggio m; butter = burro m; fruit = frutta f;
        ham = prosciutto m; yogurt = yogurt m; salad = insalata f""",
    "prepared": """
        soup = zuppa f; rice = riso m; chocolate = cioccolato m; honey = miele m; chicken = pollo m;
        ice cream = gelato m""",
    "basics": "sugar = zucchero m; salt = sale m; oil = olio m",
    "pasta": "gnocchi = gnocchi m; spaghetti = spaghetti m; lasagne = lasagne f",
    "produce": """
        apple = mela f; orange = arancia f; lemon = limone m; egg = uovo/uova mf; tomato = pomodoro m;
        potato = patata f; strawberry = fragola f; cherry = ciliegia f; banana = banana f; peach = pesca f;
        pear = pera f; onion = cipolla f; mushroom = fungo m; fig = fico m; olive = oliva f""",
    "dish": """
        pizza = pizza f; cake = torta f; biscuit = biscotto m; sandwich = panino m; steak = bistecca f;
        omelette = frittata f; snack = spuntino m""",
    "drink": """
        water = acqua f; wine = vino m; beer = birra f; coffee = caffè m; tea = tè m; milk = latte m;
        lemonade = limonata f""",
    "meal": "breakfast = colazione f; lunch = pranzo m; dinner = cena f",
    "reading": """
        book = libro m; letter = lettera f; newspaper = giornale m; magazine = rivista f; message = messaggio m;
        email = email/email f; article = articolo m; poem = poesia f; novel = romanzo m; story = storia f""",
    "belonging": """
        key = chiave f; bag = borsa f; umbrella = ombrello m; phone = telefono m; watch = orologio m;
        wallet = portafoglio m; ticket = biglietto m; passport = passaporto m; backpack = zaino m;
        suitcase = valigia f; pen = penna f; pencil = matita f; notebook = quaderno m; dictionary = dizionario m;
        map = mappa f; ring = anello m; gift = regalo m; toy = giocattolo m; ball = palla f;
        computer = computer/computer m; photo = foto/foto f; postcard = cartolina f; box = scatola f;
        flower = fiore m""",
    "tableware": """
        plate = piatto m; glass = bicchiere m; cup = tazza f; bottle = bottiglia f; knife/knives = coltello m;
        fork = forchetta f; spoon = cucchiaio m""",
    "instrument": "guitar = chitarra f; piano = pianoforte m; violin = violino m",
    "garment": """
        shirt = camicia f; dress = vestito m; hat = cappello m; coat = cappotto m; jacket = giacca f; skirt = gonna f;
        sweater = maglione m; scarf/scarves = sciarpa f; tie = cravatta f""",
    "pair": """
        shoes = scarpe f; boots = stivali m; gloves = guanti m; socks = calzini m; trousers = pantaloni m;
        sunglasses = occhiali da sole/occhiali da sole m""",
    "furniture": """
        table = tavolo m; chair = sedia f; bed = letto m; sofa = divano m; desk = scrivania f;
        shelf/shelves = scaffale m; wardrobe = armadio m; fridge = frigorifero m; mirror = specchio m;
        lamp = lampada f; drawer = cassetto m""",
    "opening": "door = porta f; window = finestra f; gate = cancello m",
    "appliance": "light = luce f; radio = radio/radio f; television = televisione f",
    "vehicle": """
        car = macchina f; bicycle = bicicletta f; boat = barca f; motorbike = moto/moto f; scooter = scooter m""",
    "transport": """
        bus = autobus m; train = treno m; plane = aereo m; taxi = taxi/taxi m; ship = nave f; tram = tram m""",
    "building": """
        house = casa f; hotel = albergo m; restaurant = ristorante m; shop = negozio m; bank = banca f;
        church = chiesa f; station = stazione f; airport = aeroporto m; museum = museo m; school = scuola f;
        hospital = ospedale m; library = biblioteca f; pharmacy = farmacia f; castle = castello m; tower = torre f;
        stadium = stadio m; university = università f; cinema = cinema/cinema m; theatre = teatro m; market = mercato m;
        supermarket = supermercato m; office = ufficio m; bridge = ponte m; apartment = appartamento m""",
    "outdoors": """
        park = parco m; garden = giardino m; square = piazza f; street = strada f; city = città f; village = paese m;
        beach = spiaggia f; lake = lago m; river = fiume m; island = isola f; mountain = montagna f; zoo = zoo/zoo m;
        sea = mare m""",
    "room": """
        kitchen = cucina f; bathroom = bagno m; room = stanza f; terrace = terrazza f; balcony = balcone m;
        living room = soggiorno m""",
    "animal": """
        dog = cane m; cat = gatto m; bird = uccello m; horse = cavallo m; mouse/mice = topo m; cow = mucca f;
        rabbit = coniglio m; lion = leone m; squirrel = scoiattolo m; donkey = asino m; wolf/wolves = lupo m;
        spider = ragno m; snake = serpente m; dinosaur = dinosauro m""",
    "person": """
        man/men = uomo/uomini m; woman/women = donna f; boy = ragazzo m; girl = ragazza f;
        child/children = bambino m; waiter = cameriere m; waitress = cameriera f; policeman/policemen = poliziotto m;
        tourist = turista m; foreigner = straniero m; actor = attore m; actress = attrice f""",
    "job": """
        doctor = medico/medici m; teacher = insegnante m; student = studente m; nurse = infermiere m; cook = cuoco m;
        singer = cantante m; writer = scrittore m; artist = artista m; journalist = giornalista m;
        dentist = dentista m; psychologist = psicologo/psicologi m; engineer = ingegnere m; lawyer = avvocato m""",
    "she": """
        doctor = dottoressa f; teacher = insegnante f; student = studentessa f; nurse = infermiera f; cook = cuoca f;
        singer = cantante f; writer = scrittrice f; artist = artista f; journalist = giornalista f;
        dentist = dentista f; psychologist = psicologa f""",
    "acquaintance": """
        friend = amico/amici m; neighbour = vicino m; colleague = collega m; boss = capo m; guest = ospite m""",
    "family": """
        mother = madre f; father = padre m; brother = fratello m; sister = sorella f; son = figlio m;
        daughter = figlia f; cousin = cugino m; uncle = zio/zii m; aunt = zia f; grandfather = nonno m;
        grandmother = nonna f""",
    "spouse": "husband = marito m; wife/wives = moglie/mogli f",
    "parents": "parents = genitori m; grandparents = nonni m; children = figli m",
    "matter": """
        question = domanda f; answer = risposta f; problem = problema m; idea = idea f; exam = esame m;
        lesson = lezione f; exercise = esercizio m; word = parola f; name = nome m; secret = segreto m;
        mistake = errore m; journey = viaggio m""",
    "event": """
        film = film m; song = canzone f; match = partita f; concert = concerto m; show = spettacolo m;
        party = festa f""",
    "bill": "bill = conto m; job = lavoro m; truth = verità f",
    "language": """
        Italian = italiano m; English = inglese m; French = francese m; Spanish = spagnolo m; German = tedesco m""",
    "studies": "maths = matematica f; history = storia f; chemistry = chimica f",
    "sound": "music = musica f; jazz = jazz m; opera = opera f",
    "country": """
        Italy = Italia f; France = Francia f; Spain = Spagna f; Germany = Germania f; England = Inghilterra f;
        Greece = Grecia f; Portugal = Portogallo m""",
    "far country": """
        America = America f; Canada = Canada m; Brazil = Brasile m; Mexico = Messico m; China = Cina f;
        Japan = Giappone m; India = India f; Russia = Russia f; Poland = Polonia f; Ireland = Irlanda f;
        Scotland = Scozia f; Australia = Australia f; Africa = Africa f""",
    "measure": "piece = pezzo m; slice = fetta f; kilo = chilo m; litre = litro m; basket = cesto m",
}


def _read_noun(kind: str, entry: str) -> Noun:
    source, target = (side.strip() for side in entry.split("="))
    target, genders = target.rsplit(" ", 1)
    singular, _, is_plural = source.partition("/")
    italian_singular, _, italian_plural_form = target.partition("/")
    gender, plural_gender = _GENDERS[genders]
    if kind in PLURAL_KINDS:
        is_plural, italian_plural_form = singular, italian_singular
    return Noun(
        english=singular,
        english_plural=is_plural or english.plural(singular),
        italian=italian_singular,
        italian_plural=italian_plural_form or italian.plural(italian_singular, gender),
        gender=gender,
        plural_gender=plural_gender,
        kind=kind,
    )


_GENDERS: dict[str, tuple[Gender, Gender]] = {"m": ("m", "m"), "f": ("f", "f"), "mf": ("m", "f")}
KINDS = {kind: tuple(_read_noun(kind, entry) for entry in text.split(";")) for kind, text in _TABLE.items()}
NOUNS = {noun.english: noun for kind, nouns in KINDS.items() if kind != "she" for noun in nouns}
FEMININE = {noun.english: noun for noun in KINDS["she"]}  # jobs of women: my sister is a doctor, dottoressa


def nouns(names: str) -> tuple[Noun, ...]:
    """Return nouns by name: `bread`, `ice_cream`, or a whole kind, `+drink`."""
    selected: list[Noun] = []
    for name in names.split():
        selected += KINDS[name[1:]] if name.startswith("+") else (NOUNS[name.replace("_", " ")],)
    return tuple(selected)


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective in both languages."""

    english: str
    italian: str
    comparative: str = ""  # one English word: taller; empty if it is formed with `more`
    goes_before: bool = False


_COMPARATIVES = {
    "tall": "taller", "short": "shorter", "young": "younger", "old": "older", "kind": "kinder", "rich": "richer",
    "strong": "stronger", "big": "bigger", "small": "smaller", "new": "newer", "cheap": "cheaper", "fast": "faster",
    "slow": "slower", "long": "longer", "clean": "cleaner", "lazy": "lazier", "nice": "nicer", "quiet": "quieter",
    "ugly": "uglier", "dirty": "dirtier", "dark": "darker", "easy": "easier", "heavy": "heavier", "shy": "shyer",
    "strange": "stranger", "lovely": "lovelier",
}  # fmt: skip

_COLORS = "red = rosso; white = bianco; black = nero; green = verde; blue = blu; yellow = giallo; grey = grigio; " \
           "brown = marrone; pink = rosa"  # fmt: skip
COLOR_WORDS = frozenset(entry.split("=")[0].strip() for entry in _COLORS.split(";"))
_AGE = "new = nuovo; old = vecchio"
_PRICE = "expensive = caro; cheap = economico"
_SIZE = "big = grande; small = piccolo"
_THING = f"{_AGE}; {_PRICE}; {_SIZE}; beautiful = ^bello"
_WORK = "good = ^buono; interesting = interessante; boring = noioso; long = lungo; beautiful = ^bello"
_CHARACTER = """
    tall = alto; young = giovane (-boy girl child); old = anziano (-boy girl child); kind = gentile; nice = simpatico;
    intelligent = intelligente; lazy = pigro; rich = ricco (-child); famous = famoso (-child); strong = forte;
    shy = timido; honest = onesto; strange = strano; elegant = elegante (-child); polite = educato"""
_MOOD = """
    tired = stanco; happy = felice; sad = triste; angry = arrabbiato; ill = malato; ready = pronto; busy = occupato;
    nervous = nervoso; worried = preoccupato; bored = annoiato; free = libero; calm = calmo; short = basso;
    poor = povero; married = sposato; curious = curioso; alone = solo"""

_BY_KIND = {
    "larder": "good = ^buono; fresh = fresco; delicious = delizioso",
    "prepared": "good = ^buono; delicious = delizioso",
    "produce": f"good = ^buono; fresh = fresco; sweet = dolce (-egg potato tomato onion mushroom olive lemon); {_SIZE}",
    "dish": "good = ^buono; delicious = delizioso; small = piccolo",
    "drink": "good = ^buono; cold = freddo; hot = caldo (coffee tea milk water)",
    "reading": f"{_WORK}; new = nuovo (book magazine newspaper poem novel); "
    "old = vecchio (book magazine newspaper letter poem novel story); famous = famoso (book magazine poem novel); "
    "difficult = difficile (book article poem novel)",
    "event": f"{_WORK}; new = nuovo (film song show); old = vecchio (film song); famous = famoso (film song show)",
    "belonging": f"{_THING}; useful = utile (umbrella phone map dictionary computer pen notebook backpack bag gift); "
    + re.sub("(;|$)", r" (bag umbrella backpack suitcase pen pencil box ball notebook wallet toy)\1", _COLORS),
    "tableware": "clean = pulito; dirty = sporco; empty = vuoto (glass cup bottle); full = pieno (glass cup bottle); "
    f"{_THING}",
    "instrument": f"{_AGE}; {_PRICE}; beautiful = ^bello",
    "garment": f"{_AGE}; {_PRICE}; beautiful = ^bello; elegant = elegante; clean = pulito; dirty = sporco; {_COLORS}",
    "pair": f"{_AGE}; {_PRICE}; beautiful = ^bello; elegant = elegante; dirty = sporco; comfortable = comodo; "
    f"{_COLORS}",
    "furniture": f"{_THING}; modern = moderno; heavy = pesante; comfortable = comodo (chair bed sofa)",
    "opening": f"open = aperto; closed = chiuso; broken = rotto; {_SIZE}; green = verde; white = bianco",
    "vehicle": f"{_THING}; fast = veloce; slow = lento; comfortable = comodo; {_COLORS}",
    "transport": f"{_AGE}; {_SIZE}; fast = veloce; slow = lento; comfortable = comodo; full = pieno; {_COLORS}",
    "building": f"{_AGE}; {_SIZE}; beautiful = ^bello; ugly = ^brutto; modern = moderno (-castle tower); "
    "ancient = antico (church castle tower bridge theatre library university house); famous = famoso (-pharmacy house "
    "apartment supermarket office); quiet = tranquillo (-tower bridge stadium airport); expensive = caro (hotel "
    "restaurant shop apartment house market supermarket); cheap = economico (hotel restaurant shop apartment market)",
    "outdoors": f"{_SIZE}; beautiful = ^bello; lovely = ^bello; quiet = tranquillo; famous = famoso (-garden sea)",
    "room": f"{_SIZE}; clean = pulito; dirty = sporco; dark = buio (-terrace balcony); empty = vuoto; "
    "comfortable = comodo",
    "animal": f"{_SIZE}; black = nero (-lion squirrel dinosaur); white = bianco (-lion squirrel dinosaur); "
    "old = vecchio (-spider mouse); lazy = pigro (-spider); intelligent = intelligente (-spider dinosaur); "
    "lovely = adorabile",
    "matter": "easy = facile (question problem exam lesson exercise word answer); difficult = difficile (question "
    "problem exam lesson exercise word journey name answer); important = importante (-mistake name journey exercise); "
    "interesting = interessante (question answer problem idea lesson exercise journey); strange = strano "
    "(-exam lesson exercise); long = lungo (exam lesson exercise word journey answer)",
    "person": f"good = ^bravo (-man tourist foreigner); lovely = adorabile (woman girl boy child); {_CHARACTER}",
    "job": f"good = ^bravo; {_CHARACTER}",
    "she": f"good = ^bravo; {_CHARACTER}",
    "country": f"beautiful = ^bello; interesting = interessante; expensive = caro; {_SIZE}",
}  # fmt: skip


@dataclass(frozen=True)
class _Use:
    adjective: Adjective
    only: frozenset[str]
    never: frozenset[str]


def _read_uses(text: str) -> tuple[_Use, ...]:
    uses: list[_Use] = []
    for entry in text.split(";"):
        english, target = (side.strip() for side in entry.split("="))
        italian, _, bracket = target.partition("(")
        names = bracket.strip(" )").split()
        excluded = bool(names) and names[0].startswith("-")
        adjective = Adjective(english, italian.strip(" ^"), _COMPARATIVES.get(english, ""), "^" in italian)
        listed = frozenset(name.lstrip("-") for name in names)
        uses.append(_Use(adjective, frozenset() if excluded else listed, listed if excluded else frozenset()))
    return tuple(uses)


_USES = {kind: _read_uses(text) for kind, text in _BY_KIND.items()}

CHARACTER = tuple(use.adjective for use in _read_uses(_CHARACTER))  # permanent qualities of people
MOOD = {use.adjective.english: use.adjective for use in _read_uses(_MOOD)}  # states of people, only after `be`
SAME, FIRST, LAST, NEXT = (
    use.adjective for use in _read_uses("same = ^stesso; first = ^primo; last = ^ultimo; next = ^prossimo")
)


@cache
def predicative_adjectives(noun: Noun) -> tuple[Adjective, ...]:
    """Return adjectives for `NOUN is …`; a good book is `un buon libro`, but `il libro è buono` is not idiomatic."""
    prized = noun.kind in {"reading", "event"}
    return tuple(
        adjective for adjective in attributive_adjectives(noun) if not (prized and adjective.english == "good")
    )


@cache
def attributive_adjectives(noun: Noun) -> tuple[Adjective, ...]:
    """Return the adjectives that can describe a noun.

    >>> from regard.phrasebook.nouns import NOUNS
    >>> [adjective.english for adjective in attributive_adjectives(NOUNS["water"])]
    ['good', 'cold', 'hot']
    """
    return tuple(
        use.adjective
        for use in _USES.get(noun.kind, ())
        if noun.english not in use.never and (not use.only or noun.english in use.only)
    )
