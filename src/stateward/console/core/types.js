// Types of the API's answers and of the console, for the type checker. Nothing here runs.

/**
 * @typedef {{name: string, role: string, rights: string[], namespaces: string[], demo: boolean, version: string,
 *   domains?: string[]}} Me
 */

/**
 * @typedef {{name: string, about: string, version: string, requires: string, kinds: string[], place: string | null,
 *   error: string | null}} Plugin one that could not be loaded has an error, which administrators see
 */

/** @typedef {"stable" | "transitional" | "final"} StateClass */

/** @typedef {{state: string, state_class: StateClass, about: string}} StateInfo */

/**
 * @typedef {{meaning: string, sources: string[], event: string, actors: string[], via: string | null, to: string,
 *   error: string | null, within: number | null, needs: string[]}} Row
 */

/**
 * @typedef {{kind: string, about: string, initial: string, actors: string[], actions: string[], states: StateInfo[],
 *   rows: Row[], spec: Schema | null, spec_actions?: string[], args: Record<string, Schema>, columns: string[], creatable: boolean, composite_actions?: string[]}} Kind
 */

/**
 * @typedef {{ns: string, id: string, kind: string, state: string, state_class: StateClass | null, since: string,
 *   version: number, generation: number, op: string | null, queue: string, parent: string | null, spec: any, seen: any,
 *   labels: Record<string, string>, error: string | null, created: string,
 *   protected?: string}} ObjectView
 */

/**
 * @typedef {{ns: string, id: string, object: string, kind: string, action: string, status: string, actor: string,
 *   who: string, facts: string[], args: any, origin: string, via: string, desired: string, failing: string,
 *   hidden: boolean, within: number, generation: number, parent: string | null, tree: string | null,
 *   attempts: number, steps: any, result: any, error: string | null, traceback: string | null, created: string, started: string | null,
 *   ended: string | null, group: string | null, parts: Record<string, number> | null}} Operation
 */

/**
 * @typedef {{kind: string, name: string, status: string, began: string | null, ended: string | null, text: string,
 *   object: string | null, op: string | null, provider: string | null, target: string | null, count: number,
 *   slowest_s: number | null}} Span
 */

/** @typedef {{field: string, how: string, before: any, after: any}} FieldChange */

/**
 * @typedef {{seq: number, at: string, actor: string, who: string, event: string, op: string | null,
 *   fields: FieldChange[]}} SpecChange
 */

/** @typedef {{operation: Operation, spans: Span[], now: string}} Timeline */

/** @typedef {{object: ObjectView, operation: Operation | null}} Accepted */

/**
 * @typedef {{action: string, accepted: boolean, problem: ProblemFields | null, total: number,
 *   targets: {kind: string, state: string, via: string | null, desired: string, count: number}[],
 *   places: {place: string, count: number}[],
 *   refused: {code: string, detail: string, state: string, count: number, examples: string[]}[],
 *   protected: number, protected_examples: string[], removes: boolean, undo: string | null, within: number | null,
 *   effects: string[]}} Preview what an action would do; nothing was changed
 */

/**
 * @typedef {{seq: number, ns: string, object: string, kind: string, op: string | null, at: string, actor: string,
 *   who: string, event: string, source: string | null, target: string | null, reason: string | null, spec: any}} JournalEntry
 */

/**
 * @typedef {{event: string, allowed: boolean, why_not: string | null, needs: string[], target: string | null,
 *   desired: string | null, within: number | null}} AllowedAction
 */

/**
 * @typedef {{op: string, action: string, actor: string, who: string, since: string, path?: string | null,
 *   mode?: string | null, waiting?: boolean}} Blocker
 */

/**
 * @typedef {{type?: string, title: string, status: number, code: string, detail: string, retry?: boolean,
 *   field?: string, state?: string, state_class?: StateClass, allowed?: string[], allowed_with?: Record<string, string[]>,
 *   missing?: string[],
 *   blocker?: Blocker, blockers?: Blocker[], known?: string[], nearest?: string, right?: string, version?: number,
 *   limit?: number, skipped?: Record<string, ProblemFields>, retry_after?: number,
 *   protection?: {ns: string, object: string | null, reason: string, command: string}}} ProblemFields
 */

/**
 * @typedef {{lane: string, grp: string, capacity: number, running: number, waiting: boolean,
 *   back_off: string | null, throttled: number}} Lane
 */

/** @typedef {{groups: {grp: string, lanes: number}[], lanes: Lane[]}} Lanes */

/** @typedef {{tree: string, path: string, mode: string, op: string, waiting: boolean}} Lock */

/**
 * @typedef {{position: number, op: string, object: string, action: string, who: string, lane: string, grp: string,
 *   priority: number, attempts: number, owner: string | null, not_before: string | null, deadline: string | null,
 *   reason: string, text: string}} QueuedOperation
 */

/**
 * @typedef {{id: string, kind: string, state: string, state_class: StateClass | null,
 *   operation: Operation | null}} Ancestor
 */

/**
 * @typedef {{id: string, kind: string, state: string, text: string, reason: string | null,
 *   operation: Operation | null, queue: QueuedOperation[], lane: Lane | null, locks: Lock[], children: Operation[],
 *   parents: Ancestor[], error?: string | null, allowed?: string[]}} Why
 */

/**
 * @typedef {{ns: string, object: string, op: string, action: string, state: string, why: string,
 *   deadline: string | null, owner: string | null, attempts: number}} Stuck
 */

/**
 * @typedef {{ns: string, id: string, due: string, rank: number, object: string, event: string, facts: string[],
 *   args: any}} Timer
 */

/** @typedef {{id: string, host: string, pid: number, lease: number, seen: string, alive: boolean}} Worker */

/**
 * @typedef {{id: string, name: string, role: string, namespaces: string[], state: string, created: string,
 *   expires: string | null}} Token
 */

/** @typedef {{ns: string, objects: Record<string, number>, operations: number | null}} Quota */

/** @typedef {Record<string, Record<string, Record<string, number>>>} Counts by namespace, kind and state */

/**
 * @typedef {object} Context What a view gets: where to draw, and ways to listen that end when the view does.
 * @property {HTMLElement} main
 * @property {string[]} path the parts of the address behind the view's name
 * @property {URLSearchParams} query
 * @property {AbortSignal} signal
 * @property {(topic: string, listener: (detail: any) => void) => void} on
 * @property {(seconds: number, act: () => unknown) => void} every also once, at once
 */

/** @typedef {{title: string, show: (context: Context) => void | Promise<void>}} View */

/** @import {Child} from "./dom.js" */
/** @import {Field, Repeat, Values} from "../ui/form.js" */
/** @import {Schema} from "../ui/schema-words.js" */

/** @typedef {[string, string, any?]} Call method, path, body */

/**
 * @typedef {object} ActionForm An action through the own API of a domain.
 * @property {(thing: ObjectView) => Field[] | Promise<Field[]>} [fields] its arguments
 * @property {string} [right] the right that it needs, if not `act`
 * @property {(thing: ObjectView, facts: string[], values: Values) => Call} call
 * @property {(thing: ObjectView, values: Values) => {action: string, facts?: string[], args?: any}} [preview] the request
 *   of the general API whose preview tells what the call does
 * @property {boolean} [asksAlways] whether it is asked for even if it can be undone: what follows from it cannot
 * @property {boolean} [dryRun] whether the dry run of the call tells what it does: its route has `can_dry_run()`
 */

/**
 * @typedef {object} DomainCommand A command of a domain: `stateward COMMAND -n NAMESPACE OPTIONS NAMES`.
 * @property {string} command such as `ovc create disk`
 * @property {[string, string | number | undefined][]} [options] those without a value are left out
 * @property {string[]} [names] its arguments
 * @property {string[]} [words] a command for it to run, behind `--`
 * @property {any} [document] what it reads from its standard input, as YAML
 * @property {string[]} [after] a command that has to succeed first
 */

/**
 * @typedef {object} CreateForm Creates an object through the own API of a domain.
 * @property {string} name what is created
 * @property {string} [right] the right that it needs, if not `act`
 * @property {(ns: string) => Field[] | Promise<Field[]>} fields
 * @property {(ns: string, values: Values) => Call} call
 * @property {(ns: string, values: Values) => DomainCommand} [command] the command that sends the same as the call; curl,
 *   if there is none
 * @property {(ns: string) => Promise<void>} [prepare] runs before the call
 * @property {(ns: string, values: Values) => Promise<string>} [whyNoPlan] why the call cannot be planned now; empty if it can
 * @property {(ns: string, values: Values, object: ObjectView) => Child[] | Promise<Child[]>} [planned] more about the plan;
 *   the object is what would be stored
 * @property {Repeat} [repeat] the fields that can be filled in several times
 */

/**
 * @typedef {object} Domain What the module of a domain exports by default.
 * @property {string} name the name of its plug-in, which its kinds begin with
 * @property {string} nav its entry in the navigation; its name, if there is none
 * @property {string} [hotkey] the letter after `g`, if it is free
 * @property {[string, string]} [tour] title and text of its step in the tour
 * @property {View} [view] its view; the generic one, if there is none
 * @property {Record<string, Record<string, ActionForm>>} actions by kind and action; none, if there are none
 * @property {Record<string, string[]>} [extraActions] by kind: actions beside those of the lifecycle table
 * @property {Record<string, [string, string]>} [nouns] by kind: its noun, for one and for many, such as VM and VMs
 * @property {Record<string, (thing: ObjectView, context: Context) => Child[]>} [panels] by kind: further cards of an object's
 *   page, drawn once
 * @property {CreateForm[]} createForms none, if there are none: its kinds have generic forms
 */

export {};
