// Questions that are asked again while their inputs change: only the latest answer counts.

/** Return a function that asks after a pause; an older question is stopped, its answer dropped. */
export function latest(ask, pauseMs = 250) {
  let timer = 0;
  let current = new AbortController();
  return (pause = pauseMs) => {
    clearTimeout(timer);
    current.abort();
    const controller = new AbortController();
    current = controller;
    timer = setTimeout(async () => {
      try {
        await ask(controller.signal);
      } catch (error) {
        if (error.name !== "AbortError") throw error;
      }
    }, pause);
  };
}
