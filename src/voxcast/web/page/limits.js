// A limit as text and as a slider: the slider's last step is no limit.

import { byId } from "./dom.js";

const STEPS = 100;

/** Return a value with two significant digits. */
function rounded(value) {
  const power = 10 ** (Math.floor(Math.log10(value)) - 1);
  return Math.round(value / power) * power;
}

/**
 * Join a text field and a slider.
 *
 * @param {(value: number) => string} write - a quantity as text
 * @param {(text: string) => number} read - NaN for a text that is no quantity
 * @param {() => void} changed - called after each change by the user
 */
export function limitInput(field, slider, { write, read, changed }) {
  let [low, high] = [1, 10];
  const valueText = () => slider.setAttribute("aria-valuetext", field.value || "none");

  function placeSlider() {
    const value = read(field.value);
    const along = Math.log(value / low) / Math.log(high / low);
    slider.value = field.value && Number.isFinite(along)
      ? Math.round(Math.min(1, Math.max(0, along)) * (STEPS - 1)) : STEPS;
    valueText();
  }

  slider.addEventListener("input", () => {
    const step = Number(slider.value);
    field.value = step >= STEPS ? "" : write(rounded(low * (high / low) ** (step / (STEPS - 1))));
    valueText();
    changed();
  });
  field.addEventListener("input", () => {
    placeSlider();
    changed();
  });
  valueText();
  return {
    /** Let the slider go from below the least to above the greatest of quantities. */
    span(values) {
      const finite = values.filter((value) => Number.isFinite(value) && value > 0);
      if (!finite.length) return;
      [low, high] = [Math.min(...finite) / 1.5, Math.max(...finite) * 2];
      placeSlider();
    },
    /** Return whether a message is about this limit. */
    isMeant: (message) => message.toLowerCase().includes(field.id)
      || (field.value.trim() !== "" && message.includes(field.value.trim())),
    /** Mark the field with the reason why the service refused its text, or with none. */
    refused(reason) {
      if (reason) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
      byId(`${field.id}-refusal`).textContent = reason ?? "";
    },
    disable(isDisabled) {
      field.disabled = isDisabled;
      slider.disabled = isDisabled;
    },
  };
}
