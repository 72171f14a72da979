// Search from disk: browsers start no worker from a file:// address, so a hidden frame takes its place.
"use strict";

class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    const inside = (this.inside = frame.contentWindow);
    inside.document.open(); // else some browsers replace the empty document later
    inside.document.write("<body></body>");
    inside.document.close();
    const load = (address) =>
      new Promise((loaded, failed) => {
        const script = inside.document.createElement("script");
        script.src = address;
        script.onload = loaded;
        script.onerror = failed;
        inside.document.body.append(script);
      });
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    inside.importScripts = (...addresses) => addresses.reduce((before, one) => before.then(() => load(one)), Promise.resolve());
    this.ready = load(url);
  }

  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}

window.IFrameWorker = FrameWorker; // the name by which the theme's search knows that it runs in a frame
if (location.protocol === "file:") window.Worker = FrameWorker;
