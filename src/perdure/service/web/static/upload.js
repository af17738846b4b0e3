// Files of a form go ahead of it, one by one: what the form then carries is their ids.
(() => {
  "use strict";

  const MIB = 1024 * 1024;
  const FORM = "[data-sends-files]";
  const PLACE = "/api/v1/whatif/uploads";
  const files = (form) => [...form.querySelectorAll("input[data-sent-as]")];
  const carried = (input) => input.form.elements.namedItem(input.dataset.sentAs);

  document.addEventListener(
    "submit",
    (event) => {
      const form = event.target;
      if (!form.matches?.(FORM) || !form.querySelector("[data-upload-choice]").checked) return;
      const due = files(form).filter((input) => input.files.length && !carried(input).value);
      if (!due.length) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      if (form.ariaBusy !== "true") sendAll(form, due);
    },
    true,
  );

  // Another file is chosen: what was sent before is not it.
  document.addEventListener("change", (event) => {
    if (event.target.matches?.("input[data-sent-as]")) carried(event.target).value = "";
  });

  async function sendAll(form, due) {
    const shown = form.querySelector(".ask-sending");
    form.ariaBusy = "true";
    shown.hidden = false;
    try {
      for (const input of due) carried(input).value = await send(input.files[0], input.dataset.mostMib, shown);
      form.requestSubmit();
    } catch (problem) {
      document.dispatchEvent(new CustomEvent("perdure:told", { detail: { text: problem.message, bad: true } }));
    } finally {
      form.ariaBusy = "false";
      shown.hidden = true;
    }
  }

  // Not fetch: it does not tell how much has been sent.
  function send(file, mostMib, shown) {
    return new Promise((done, failed) => {
      const refuse = (words) => failed(new Error(words));
      if (file.size > mostMib * MIB) {
        refuse(`The file is larger than ${mostMib} MiB. Pack it with gzip, or send a part of it.`);
        return;
      }
      const request = new XMLHttpRequest();
      request.open("POST", `${PLACE}?name=${encodeURIComponent(file.name.slice(0, 100))}`);
      request.setRequestHeader("Content-Type", "application/octet-stream");
      request.setRequestHeader("X-CSRF-Token", document.querySelector('meta[name="csrf"]').content);
      request.responseType = "json";
      request.upload.onprogress = (event) => {
        shown.querySelector("progress").value = event.loaded / (event.total || 1);
      };
      request.onload = () => {
        if (request.status === 201) done(request.response.id);
        else refuse(`${request.response?.detail ?? "The file was not taken"}. ${request.response?.fix ?? ""}`);
      };
      request.onerror = () => refuse("The file could not be sent.");
      request.send(file);
    });
  }
})();
