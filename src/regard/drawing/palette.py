"""The colours of every picture, by day and by night: matplotlib draws the first, browsers in the dark the second."""

INK, SOFT, FAINT, PAPER = "#1b1c1e", "#5c6066", "#e3e4e1", "#ffffff"
BLUE, ORANGE, GREEN, PURPLE = "#2a6fc9", "#d9652b", "#2e7d4f", "#8a4fbf"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, "#b8860b", "#c2417c", "#4a8a99", "#6b6f76")
BY_NIGHT = {
    INK: "#e8e8e5",
    SOFT: "#a9adb2",
    FAINT: "#313437",
    BLUE: "#6aa5f0",
    ORANGE: "#ee8a55",
    GREEN: "#6cc490",
    PURPLE: "#b792e0",
    "#b8860b": "#d9b04a",
    "#c2417c": "#e983b1",
    "#4a8a99": "#7fbccb",
    "#6b6f76": "#9ba0a8",
}
DASHES = (  # so that lines can be told apart in grey: as many as there are colours
    "-",
    "--",
    ":",
    "-.",
    (0, (9, 2)),
    (0, (4, 1.5, 1, 1.5, 1, 1.5)),
    (0, (1, 3.5)),
    (0, (9, 2, 3, 2)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
