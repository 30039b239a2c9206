/**
 * What the state does not contain, such as workers or the versions of a flow: read when a view opens, and again after
 * each event that can have changed it. What could not be read is read again when a lost connection is back.
 */

import { useEffect, useMemo, useState } from "../../vendor/ui.js";
import { now } from "./clock.js";
import { noteOutage } from "./outage.js";
import { client } from "./session.js";

const PAUSE = 500; // between two readings, so that many events lead to few

/**
 * @template T
 * @typedef {object} Reading
 * @property {T | null} value null until it was read; the last one while it cannot be read
 * @property {{ code?: string, message: string } | null} error why it cannot be read
 * @property {number} at when, in Unix seconds
 */

/**
 * @template T
 * @param {() => Promise<T>} read
 * @param {import("../../greenroom.js").EventType[]} types the events that can change it
 * @param {string[]} [runs] only events of these runs
 * @returns {Reading<T> & { again: () => void }}
 */
export function useReading(read, types, runs) {
  return useReader(read, (reader) => [client().onEvent(reader.again, { types, ...(runs && { runs }) }), onReturn(reader.again)]);
}

/**
 * The same for what never changes: it is read again only if it could not be read.
 * @template T
 * @param {() => Promise<T>} read
 * @returns {Reading<T> & { again: () => void }}
 */
export function useOnce(read) {
  return useReader(read, (reader) => [onReturn(() => reader.failed && reader.again())]);
}

/** Call `back` when a lost connection is back. Returns a function that ends that. @param {() => void} back */
export const onReturn = (back) => client().onConnection(({ status }) => status === "connected" && back());

/**
 * @template T
 * @param {() => Promise<T>} read
 * @param {(reader: Reader<T>) => (() => void)[]} follow begins to call `again`, and returns what ends that
 * @returns {Reading<T> & { again: () => void }}
 */
function useReader(read, follow) {
  const [reading, setReading] = useState(/** @type {Reading<T>} */ ({ value: null, error: null, at: 0 }));
  const reader = useMemo(() => new Reader(setReading), []);
  reader.read = read;
  useEffect(() => {
    reader.again();
    const ends = follow(reader);
    return () => {
      for (const end of ends) end();
      reader.close();
    };
  }, []);
  return { ...reading, again: reader.again };
}

/** Reads one at a time. While it reads, any number of calls of `again` lead to one more. @template T */
class Reader {
  /** @type {() => Promise<T>} */
  read = () => Promise.reject(new Error("there is nothing to read"));
  #set;
  /** @type {Reading<T>} */
  #reading = { value: null, error: null, at: 0 };
  #due = false;
  #busy = false;
  #closed = false;

  /** @param {(reading: Reading<T>) => void} set */
  constructor(set) {
    this.#set = set;
  }

  again = async () => {
    this.#due = true;
    if (this.#busy) return;
    this.#busy = true;
    while (this.#due && !this.#closed) {
      this.#due = false;
      this.#reading = await this.#once();
      if (this.#closed) return;
      this.#set(this.#reading);
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
    this.#busy = false;
  };

  get failed() {
    return this.#reading.error !== null;
  }

  close() {
    this.#closed = true;
  }

  /** @returns {Promise<Reading<T>>} */
  async #once() {
    const at = now.peek();
    try {
      return { value: await this.read(), error: null, at };
    } catch (error) {
      noteOutage(/** @type {Error} */ (error));
      return { ...this.#reading, error: /** @type {Error} */ (error) };
    }
  }
}
