// Calls that come faster than their responses: show the latest one and skip those in between.

/**
 * @template {any[]} Given @template Answer
 * @param {(...given: Given) => Promise<Answer>} ask
 * @param {(answer: Answer, ...given: Given) => void} show
 * @returns {(...given: Given) => Promise<void>} resolves when the latest response has been shown
 */
export function newest(ask, show) {
  let wanted = /** @type {Given | null} */ (null);
  let running = /** @type {Promise<void> | null} */ (null);
  const run = async () => {
    while (wanted) {
      const mine = wanted;
      wanted = null;
      const answer = await ask(...mine);
      if (!wanted) show(answer, ...mine);
    }
  };
  return (...given) => {
    wanted = given;
    running ??= run().finally(() => {
      running = null;
    });
    return running;
  };
}
