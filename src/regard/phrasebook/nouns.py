"""The nouns, by what kind of thing they are: verbs choose their objects, and adjectives their nouns, by kind.

An entry is `English = Italian gender`, with the plural after a slash where no rule gives it. `mf` is masculine in the
singular and feminine in the plural.
"""

from dataclasses import dataclass

from regard.phrasebook import english, italian
from regard.phrasebook.italian import Gender


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun in both languages. Masses have no plural; the pairs (trousers) have nothing else."""

    english: str
    english_plural: str
    italian: str
    italian_plural: str
    gender: Gender
    plural_gender: Gender
    kind: str

    @property
    def is_mass(self) -> bool:
        """Whether it is not counted: bread, water."""
        return self.kind in MASSES

    @property
    def is_pair(self) -> bool:
        """Whether it is always plural: trousers, parents."""
        return self.kind in PAIRS


MASSES = {"larder", "prepared", "basics", "drink", "meal", "language", "studies", "sound"}
PAIRS = {"pair", "pasta", "parents"}

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
        spider = ragno m; snake = serpente m""",
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
    "measure": "piece = pezzo m; slice = fetta f; kilo = chilo m; litre = litro m; basket = cesto m",
}


def _read(kind: str, entry: str) -> Noun:
    source, target = (side.strip() for side in entry.split("="))
    target, genders = target.rsplit(" ", 1)
    singular, _, several = source.partition("/")
    singolare, _, plurale = target.partition("/")
    gender, plural_gender = _GENDERS[genders]
    if kind in PAIRS:
        several, plurale = singular, singolare
    return Noun(
        english=singular,
        english_plural=several or english.plural(singular),
        italian=singolare,
        italian_plural=plurale or italian.plural(singolare, gender),
        gender=gender,
        plural_gender=plural_gender,
        kind=kind,
    )


_GENDERS: dict[str, tuple[Gender, Gender]] = {"m": ("m", "m"), "f": ("f", "f"), "mf": ("m", "f")}
KINDS = {kind: tuple(_read(kind, entry) for entry in text.split(";")) for kind, text in _TABLE.items()}
NOUNS = {noun.english: noun for kind, nouns in KINDS.items() if kind != "she" for noun in nouns}
FEMININE = {noun.english: noun for noun in KINDS["she"]}  # what a woman is called: my sister is a doctor, dottoressa


def nouns(names: str) -> tuple[Noun, ...]:
    """The nouns that are named: `bread`, `ice_cream`, or a whole kind, `+drink`."""
    found: list[Noun] = []
    for name in names.split():
        found += KINDS[name[1:]] if name.startswith("+") else (NOUNS[name.replace("_", " ")],)
    return tuple(found)
