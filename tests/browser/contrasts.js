// Every piece of text and every edge of a field that can be seen and is too pale, with its contrast to what is behind it.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)];
  const light = (rgb) => {
    const [r, g, b] = rgb.map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(rgba(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255]);
  };
  const ratioOf = (one, other) => {
    const [most, least] = [light(one), light(other)].sort((x, y) => y - x);
    return (most + 0.05) / (least + 0.05);
  };
  const found = [];
  for (const field of document.querySelectorAll("input:not([type=file], [type=range], [type=checkbox]), select, textarea")) {
    if (!field.checkVisibility() || field.disabled) continue;
    const back = behind(field.parentElement);
    const ratio = ratioOf(over(rgba(getComputedStyle(field).borderTopColor), back), back);
    if (ratio < 3) found.push(`the edge of ${field.ariaLabel || field.id || field.className}: ${ratio.toFixed(2)}`);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    if (element.closest(":disabled, [aria-hidden=true], .unseen, option")) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    const style = getComputedStyle(element);
    const back = behind(element);
    let share = 1;
    for (let one = element; one; one = one.parentElement) share *= Number(getComputedStyle(one).opacity);
    const [r, g, b, a] = rgba(style.color);
    const ratio = ratioOf(over([r, g, b, a * share], back), back);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (ratio < needed) found.push(`${node.data.trim().slice(0, 30)} (${element.className || element.tagName}): ${ratio.toFixed(2)}`);
  }
  return [...new Set(found)];
}
