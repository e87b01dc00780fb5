"""Verbs, with the objects that each can take.

An entry is `English = Italian : objects`, where objects are nouns or `+kinds`. `*` marks verbs with the auxiliary
essere (as all reflexive verbs have), `+di` an Italian preposition before the object.
"""

from dataclasses import dataclass, field
from functools import cache

from regard.phrasebook.nouns import Noun, nouns


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb in both languages; of several words, the first is inflected: look for, fare colazione.

    The English object of a `dative` verb is the subject in Italian: I like it, mi piace.
    """

    english: str
    italian: str
    with_essere: bool = False
    preposition: str = ""
    dative: bool = False
    objects: tuple[Noun, ...] = field(default=(), repr=False)

    @property
    def reflexive(self) -> bool:
        """Whether the verb is reflexive: svegliarsi."""
        return self.italian.endswith("si")

    @property
    def splits(self) -> bool:
        """Whether a pronoun separates it in English: turn it on."""
        return self.english.startswith("turn ")

    @property
    def infinitive(self) -> str:
        """Italian infinitive that is conjugated: svegliare for svegliarsi, fare for fare colazione."""
        head = self.italian.split()[0]
        return head[:-2] + "e" if self.reflexive else head


@cache
def tail_glosses(verb: Verb, length: int) -> tuple[str, ...]:
    """Return the glosses of the `length` words after the head of a verb; empty for that of the verb."""
    english_tail, italian_tail = verb.english.split()[1:], verb.italian.split()[1:]
    if not italian_tail or not english_tail:
        if verb.preposition and english_tail and length:
            return ("",) * (length - 1) + ("particle",)
        return ("",) * length
    if len(english_tail) == len(italian_tail):
        return tuple(f"tail{place}" for place in range(length))
    return ("tail",) * length


def _read(text: str) -> dict[str, Verb]:
    verbs = {}
    for entry in text.strip().split(";"):
        head, _, objects = entry.partition(":")
        english, italian = (side.strip() for side in head.split("="))
        italian, _, preposition = italian.partition("+")
        with_essere = italian.rstrip().endswith(("*", "si"))
        verbs[english] = Verb(english, italian.strip(" *"), with_essere, preposition.strip(), objects=nouns(objects))
    return verbs


def select_verbs(verbs: dict[str, Verb], names: str) -> tuple[Verb, ...]:
    """Return verbs by name, with underscores for spaces: `look_for`."""
    return tuple(verbs[name.replace("_", " ")] for name in names.split())


BE = Verb("be", "essere", with_essere=True)
BE_HAVING = Verb("be", "avere")  # hungry, thirty years old: avere fame, trent'anni
BE_WELL = Verb("be", "stare", with_essere=True)  # how are you? come stai?
BE_MAKING = Verb("be", "fare")  # the weather: fa freddo
HAVE = Verb("have", "avere")
LIKE = Verb("like", "piacere", with_essere=True, dative=True)
MISS = Verb("miss", "mancare", with_essere=True, dative=True)
WOULD_LIKE = Verb("would like", "volere")
COST = Verb("cost", "costare")

ACTIONS = _read("""
    eat = mangiare : +larder +prepared +pasta +produce +dish;
    cook = cucinare : meat fish rice soup chicken +pasta potato mushroom steak egg;
    order = ordinare : +dish +pasta fish soup salad ice_cream beer wine coffee steak;
    taste = assaggiare : +larder +prepared +produce wine beer cake pizza;
    cut = tagliare : bread cheese cake meat apple onion ham tomato;
    prepare = preparare : +meal coffee tea cake salad pizza;
    drink = bere : +drink;
    buy = comprare : +larder +prepared +basics +produce +dish +drink book newspaper magazine novel +belonging
        +garment +pair +furniture car bicycle house;
    sell = vendere : car house bicycle boat apartment ring guitar table +belonging;
    read = leggere : +reading;
    write = scrivere : letter message email article poem novel story book postcard;
    find = trovare : +belonging +pair wallet hotel job restaurant answer mistake;
    lose = perdere : +belonging hat scarf sunglasses gloves match;
    look for = cercare : +belonging +pair hat hotel restaurant pharmacy job +acquaintance;
    see = vedere : +person +acquaintance +animal film match show castle sea church lake island;
    watch = guardare : film match show television;
    listen to = ascoltare : music radio song story;
    open = aprire : door window gate suitcase box bottle letter shop drawer umbrella;
    close = chiudere : door window gate suitcase box shop drawer bag book;
    clean = pulire : +room house table desk office shoes fridge;
    wash = lavare : car +garment +tableware apple dog trousers socks;
    repair = riparare : car bicycle computer watch radio chair table lamp motorbike fridge;
    break = rompere : +tableware window phone computer watch chair mirror lamp;
    use = usare : computer phone knife dictionary bicycle fork map;
    bring = portare : bread wine cake fruit gift dictionary chair bottle flower;
    pay = pagare : bill;
    take = prendere : bus train taxi tram plane umbrella key map;
    miss = perdere : bus train tram plane;
    forget = dimenticare : +belonging name word hat;
    explain = spiegare : problem lesson exercise question mistake idea;
    study = studiare : +language +studies;
    learn = imparare : +language word song poem;
    teach = insegnare : +language +studies;
    visit = visitare : museum church castle tower city island village university;
    choose = scegliere : +garment hotel restaurant film book gift +dish ring shoes;
    book = prenotare : room table hotel ticket taxi;
    rent = affittare : house apartment room office;
    tell = raccontare : story secret;
    sing = cantare : song;
    begin = cominciare : lesson exercise book novel;
    finish = finire : book letter exercise novel article lesson cake;
    turn on = accendere : +appliance computer lamp;
    turn off = spegnere : +appliance computer lamp phone;
    play = suonare : +instrument;
    answer = rispondere +a : question letter email message;
    talk about = parlare +di : film book problem exam match journey concert lesson idea novel show Italy Spain France;
    think about = pensare +a : exam problem journey question party answer;
    drive = guidare : car bus taxi;
    paint = dipingere : door window wardrobe bicycle boat kitchen;
    send = mandare : letter message email postcard gift photo
""")

STATES = _read("""
    know = conoscere : +person +acquaintance song film hotel restaurant island city;
    love = amare : +sound +country sea;
    understand = capire : question lesson problem exercise +language word answer;
    remember = ricordare : name word song poem film journey story question;
    want = volere : +larder +prepared +basics +produce +dish +drink +belonging +garment +pair;
    prefer = preferire : +produce +drink +sound sea cinema theatre train;
    speak = parlare : +language;
    wear = portare : +garment +pair;
    need = avere bisogno +di : +belonging coat taxi car doctor dentist chair lamp knife
""")

TO_PEOPLE = _read("""
    see = vedere; meet = incontrare; help = aiutare; call = chiamare; invite = invitare; wait for = aspettare;
    thank = ringraziare; greet = salutare; look for = cercare; hug = abbracciare; listen to = ascoltare;
    find = trovare; kiss = baciare
""")
FEELINGS = _read("love = amare; know = conoscere; understand = capire; hear = sentire; remember = ricordare")

GIVING = _read("""
    give = dare : +reading +belonging +garment cake wine flower;
    send = mandare : letter message email postcard gift photo;
    show = mostrare : photo house garden car letter ring map ticket room dress;
    lend = prestare : book pen umbrella car bicycle dictionary computer backpack guitar coat;
    bring = portare : bread wine coffee cake gift water newspaper flower;
    write = scrivere : letter message email postcard poem;
    tell = raccontare : story secret;
    sell = vendere : car house bicycle ring guitar computer;
    explain = spiegare : problem lesson exercise mistake
""")

ACTIVITIES = _read("""
    work = lavorare; sleep = dormire; swim = nuotare; dance = ballare; sing = cantare; run = correre;
    travel = viaggiare; walk = camminare; smoke = fumare; study = studiare; cook = cucinare; cry = piangere;
    laugh = ridere; smile = sorridere; wait = aspettare; talk = parlare; eat = mangiare; drive = guidare;
    have lunch = pranzare; have dinner = cenare; have breakfast = fare colazione; go shopping = fare la spesa;
    take a walk = fare una passeggiata; have a shower = fare la doccia; play football = giocare a calcio;
    play tennis = giocare a tennis; play cards = giocare a carte; paint = dipingere; shout = gridare
""")

MOVING = _read(
    "go = andare*; come = venire*; come back = tornare*; arrive = arrivare*; go out = uscire*; leave = partire*"
)
STAYING = _read("stay = rimanere*; live = abitare; be born = nascere*; fall = cadere*")

ONESELF = _read("""
    wake up = svegliarsi; get up = alzarsi; get dressed = vestirsi; have fun = divertirsi; get bored = annoiarsi;
    fall asleep = addormentarsi; relax = rilassarsi; rest = riposarsi; stop = fermarsi;
    get angry = arrabbiarsi; get ready = prepararsi; sit down = sedersi; get married = sposarsi; get lost = perdersi
""")

OF_THINGS = _read(
    "leave = partire*; arrive = arrivare*; open = aprire; close = chiudere; begin = cominciare*; end = finire*"
)
WEATHER = _read("rain = piovere; snow = nevicare")

MODALS = _read(
    "can = potere; must = dovere; have to = dovere; want to = volere; know how to = sapere; would like to = volere"
)
TALKING = _read("know = sapere; say = dire")
