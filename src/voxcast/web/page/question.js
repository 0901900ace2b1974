// The form of a question: application, parameters, cluster, policy, limits, price of requests.

import { byId, fillSelect, html } from "./dom.js";
import { limitInput } from "./limits.js";
import { duration, number, percent, secondsOf } from "./quantities.js";

const plain = (text) => text.replaceAll(/[\u00a0\u202f]/g, " ");
const amount = (id) => (byId(id).value.trim() === "" ? null : Number(byId(id).value));

/**
 * Return the form; it calls back with the part of the question that changed.
 *
 * @param {{app: () => void, inputs: () => void, site: () => void, prices: () => void}} changed
 */
export function questionForm(changed) {
  let apps = {}, clusters = {}, policies = {};
  let filled = null;
  const ready = new Promise((resolve) => {
    filled = resolve;
  });
  const deadline = limitInput(byId("deadline"), byId("deadline-range"),
    { write: (s) => plain(duration(s)), read: secondsOf, changed: changed.site });
  const budget = limitInput(byId("budget"), byId("budget-range"),
    { write: (usd) => plain(number(usd, 2)), read: Number, changed: changed.site });

  byId("question").addEventListener("submit", (event) => event.preventDefault());
  byId("app").addEventListener("change", () => {
    fillApp();
    changed.app();
  });
  byId("host").addEventListener("change", changed.inputs);
  byId("parameters").addEventListener("input", changed.inputs);
  for (const id of ["cluster", "policy"]) {
    byId(id).addEventListener("change", () => {
      describeSite();
      changed.site();
    });
  }
  for (const id of ["alpha", "beta", "gamma", "checkpoint", "restart"]) {
    byId(id).addEventListener("input", changed.prices);
  }

  function fillApp() {
    const { parameters = {}, host_classes: hosts = [] } = apps[byId("app").value] ?? {};
    byId("parameters").replaceChildren(...Object.entries(parameters).map(parameterField));
    byId("parameters-box").hidden = Object.keys(parameters).length === 0;
    fillSelect(byId("host"), [["", "as measured"], ...hosts.map((host) => [host, host])]);
    byId("host-field").hidden = hosts.length < 2;
  }

  function describeSite() {
    const cluster = clusters[byId("cluster").value], policy = policies[byId("policy").value];
    byId("cluster-hint").textContent = cluster?.problem ?? (cluster?.this_machine ? "The machine of the service." : "");
    byId("policy-hint").textContent = policy?.problem ?? (policy === undefined ? ""
      : `Time and memory each suffice for ${percent(policy.confidence)} of runs, so at most ${percent(policy.risk)} of requests `
        + `are too small in either. Requests add ${percent(policy.time_margin)} to the bound of time and ${percent(policy.memory_margin)} to that of memory. `
        + `A result one hour earlier is worth ${number(policy.hour_in_core_hours)} core-hours.`);
  }

  return {
    deadline,
    budget,
    fill(models, sites) {
      apps = models.apps;
      fillSelect(byId("app"), Object.keys(apps).map((name) => [name, name]));
      policies = Object.fromEntries(sites.policies.map((policy) => [policy.name, policy]));
      clusters = Object.fromEntries(sites.clusters.map((cluster) => [cluster.name, cluster]));
      const names = (group) => Object.keys(group).map((name) => [name, name]);
      fillSelect(byId("cluster"), names(clusters), sites.default_cluster);
      fillSelect(byId("policy"), names(policies), sites.default_policy);
      fillApp();
      describeSite();
      filled();
    },
    /** Give the application, once the form has been filled. */
    app: () => ready.then(() => byId("app").value),
    facts: () => apps[byId("app").value] ?? {},
    /** Return what every question about a scan has. */
    inputs() {
      const defaults = apps[byId("app").value]?.parameters ?? {};
      return { app: byId("app").value, parameters: readParameters(defaults),
        ...(byId("host").value ? { host: byId("host").value } : {}) };
    },
    /** Return what a recommendation hangs on besides. */
    site() {
      const [text, usd] = [byId("deadline").value.trim(), amount("budget")];
      return { cluster: byId("cluster").value, policy: byId("policy").value,
        ...(text ? { deadline: text } : {}), ...(usd === null ? {} : { budget_usd: usd }) };
    },
    /** Return the prices of a sequence of requests; a field that is no number is left to the service. */
    prices() {
      const fields = { alpha: "alpha", beta: "beta", gamma: "gamma", checkpoint_s: "checkpoint", restart_s: "restart" };
      return Object.fromEntries(Object.entries(fields)
        .map(([name, id]) => [name, Number.isNaN(amount(id)) ? byId(id).value : amount(id)])
        .filter(([, value]) => value !== null));
    },
  };
}

function parameterField([name, value]) {
  const id = `parameter-${name}`;
  const input = typeof value === "boolean"
    ? html("input", { id, type: "checkbox", checked: value })
    : html("input", { id, autocomplete: "off", inputmode: typeof value === "number" ? "decimal" : null,
      value: typeof value === "string" ? value : JSON.stringify(value) });
  input.dataset.parameter = name;
  const label = html("label", { for: id }, name.replaceAll("_", " "));
  return html("div", { class: typeof value === "boolean" ? "field check" : "field" }, label, input);
}

/** Return the parameters that differ from their defaults, each of the type of its default. */
function readParameters(defaults) {
  const changed = {};
  for (const input of byId("parameters").querySelectorAll("input")) {
    const name = input.dataset.parameter;
    let value = input.type === "checkbox" ? input.checked : input.value;
    if (typeof defaults[name] !== "string" && input.type !== "checkbox") {
      try {
        value = JSON.parse(value);
      } catch {
        // The service tells what it must be.
      }
    }
    if (JSON.stringify(value) !== JSON.stringify(defaults[name])) changed[name] = value;
  }
  return changed;
}
