// Two texts word by word: which words the second one has that the first one has not.

import { h } from "transduce/dom";

/** The words of `text`, those that are not in `before` in this order marked (longest common subsequence).
 * @param {string} before @param {string} text */
export function marked(before, text) {
  const [old, words] = [before.split(/\s+/), text.split(/\s+/)];
  const common = isCommon(old, words);
  return words.flatMap((word, i) => [i ? " " : "", common[i] ? word : h("ins", {}, word)]);
}

function isCommon(old, words) {
  const length = Array.from({ length: old.length + 1 }, () => new Array(words.length + 1).fill(0));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = words.length - 1; j >= 0; j--) {
      length[i][j] = old[i] === words[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const result = new Array(words.length).fill(false);
  for (let i = 0, j = 0; i < old.length && j < words.length;) {
    if (old[i] === words[j]) {
      result[j++] = true;
      i++;
    } else if (length[i + 1][j] >= length[i][j + 1]) i++;
    else j++;
  }
  return result;
}
