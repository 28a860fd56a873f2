// The site's search runs in a worker. Browsers start none for pages opened from a folder (file://); there, a hidden frame runs its script.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #waiting = [];

    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.frame = frame.contentWindow;
      this.frame.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, location);
      script.onload = () => {
        const waiting = this.#waiting;
        this.#waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      };
      frame.contentDocument.body.append(script);
    }

    postMessage(data) {
      if (this.#waiting) this.#waiting.push(data);
      else this.frame.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.frameElement.remove();
    }
  };
}
