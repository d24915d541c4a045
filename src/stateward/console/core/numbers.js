// Numbers as people read them: `4,050`, `1 lane`, `2 lanes`, whatever the browser's language is.

/** @param {number} count @returns {string} such as `4,050` */
export const numberText = (count) => count.toLocaleString("en");

/** @param {number} count @param {string} one @param {string} [many] @returns {string} such as `1 lane`, `4,050 lanes` */
export const counted = (count, one, many = `${one}s`) => `${numberText(count)} ${count === 1 ? one : many}`;
