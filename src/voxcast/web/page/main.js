// The page: what is asked when, and the two views.

import { announce, byId, html, redrawn } from "./dom.js";
import { showHistory } from "./history.js";
import { intake } from "./intake.js";
import { intervalTable } from "./intervals.js";
import { latest } from "./latest.js";
import { clearProblem, showProblem } from "./problems.js";
import { questionForm } from "./question.js";
import { allocation } from "./quantities.js";
import { showRecommendation } from "./recommendation.js";
import { showScan } from "./scan.js";
import { showSequences } from "./sequences.js";
import { get, onTokenWanted, post } from "./service.js";
import { askForToken } from "./token.js";
import { learnedTable } from "./versions.js";

const QUANTILE = 0.95;
let scan = null; // the last answer about an image
let predictions = []; // the last answer of POST /predict
let recommended = null; // the configuration that was recommended last, or the nearest

onTokenWanted(askForToken);

const form = questionForm({
  app: () => scans.again(),
  inputs: askAll,
  site: () => askRecommendation(),
  prices: () => askRequests(),
});

const scans = intake(form.app, (name, answer) => {
  const isNew = scan?.name !== name;
  scan = { name, answer };
  byId("result").hidden = false;
  byId("learned").hidden = true;
  byId("intake").classList.add("small");
  byId("drop-title").textContent = "Another scan";
  const summary = showScan(name, answer);
  announce(`${name} was read. ${summary}`);
  if (isNew) byId("scan-name").focus({ preventScroll: true });
  askAll(0);
});

/** Ask in one part of the answer, and show a refusal there; what it showed stays. */
function asking(id, ask) {
  const part = byId(id);
  const question = latest(async (signal) => {
    if (!scan) return;
    part.setAttribute("aria-busy", "true");
    try {
      await ask(signal, { row: scan.answer.row, ...form.inputs() });
      part.classList.remove("stale");
    } catch (error) {
      if (error.name === "AbortError" || error.status === undefined) throw error;
      part.classList.add("stale");
      refuse(id, error, () => question(0));
    } finally {
      if (!signal.aborted) part.removeAttribute("aria-busy");
    }
  });
  return question;
}

function problemBox(id) {
  let box = byId(`${id}-problem`);
  if (!box) {
    box = html("div", { id: `${id}-problem` });
    byId(id).querySelector("h2").after(box);
  }
  return box;
}

function refuse(id, error, again) {
  showProblem(problemBox(id), error, again);
  if (byId(id).querySelector(".body").childElementCount) {
    problemBox(id).append(html("p", { class: "soft" }, "Below is the answer to the question before."));
  }
  if (id !== "recommendation") return;
  for (const limit of [form.deadline, form.budget]) limit.refused(limit.isMeant(error.message) ? error.message : null);
  if (recommended === null) askRequests(0); // of the first configuration
}

const askRecommendation = asking("recommendation", async (signal, question) => {
  const answer = await post("recommend", { ...question, ...form.site() }, signal);
  clearProblem(problemBox("recommendation"));
  form.deadline.refused(null);
  form.budget.refused(null);
  const { configurations } = answer;
  form.deadline.span(configurations.map((row) => row.turnaround_bound_s));
  form.budget.span(configurations.map((row) => row.usd_bound));
  const charges = configurations.some((row) => row.usd_bound > 0);
  form.budget.disable(!charges);
  byId("budget-hint").textContent = charges ? "" : "This cluster charges nothing.";
  announce(redrawn(byId("answer"), () => showRecommendation(answer)));
  const before = recommended && allocation(recommended);
  recommended = answer.chosen ?? answer.nearest;
  showPredictions();
  if (recommended && allocation(recommended) !== before) askRequests(0);
});

const askPredictions = asking("predictions", async (signal, { row, ...question }) => {
  const answer = await post("predict", { rows: [row], configurations: "all", ...question, quantile: QUANTILE }, signal);
  clearProblem(problemBox("predictions"));
  predictions = answer.predictions;
  showPredictions();
});

function showPredictions() {
  byId("predictions").querySelector(".body")
    .replaceChildren(intervalTable(predictions, recommended, QUANTILE));
}

const askRequests = asking("sequence", async (signal, question) => {
  const { device, cpus, gpus } = recommended ?? form.facts().configurations[0];
  const answer = await post("requests",
    { ...question, configuration: { device, cpus, gpus }, ...form.prices() }, signal);
  clearProblem(problemBox("sequence"));
  redrawn(byId("sequence"), () => showSequences(answer, allocation({ device, cpus, gpus })));
});

function askAll(pause) {
  recommended = null;
  askRecommendation(pause);
  askPredictions(pause);
}

/** Show the view that the address names. */
function route() {
  const isHistory = location.hash === "#history";
  byId("view-scan").hidden = isHistory;
  byId("view-history").hidden = !isHistory;
  for (const [id, isCurrent] of [["to-scan", !isHistory], ["to-history", isHistory]]) {
    if (isCurrent) byId(id).setAttribute("aria-current", "page");
    else byId(id).removeAttribute("aria-current");
  }
  document.title = isHistory ? "voxcast: history" : "voxcast";
  if (isHistory) showHistory(byId("history"));
}

async function start() {
  const problem = byId("service-problem");
  try {
    const [models, sites] = await Promise.all([get("models"), get("sites")]);
    clearProblem(problem);
    form.fill(models, sites);
    byId("learned").replaceChildren(learnedTable(models));
    byId("model").textContent = models.version ? `model version ${models.version}` : "model without a version";
  } catch (error) {
    if (error.status === undefined) throw error;
    showProblem(problem, error, start);
  }
}

addEventListener("hashchange", route);
addEventListener("hashchange", () => byId("main").focus());
route();
start();
